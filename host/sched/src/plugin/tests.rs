//! What holds of every policy of a plugin that is asked in an instance of its own, whatever it decides.

use super::testing::{Says, plugin, trap};
use super::*;
use std::sync::Arc;
use std::time::Duration;

/// A number that a plugin decides; by default it is 0.
#[derive(Clone, Debug, PartialEq)]
struct Number {
    known: usize,
    answer: usize,
    by_plugin: ByPlugin,
}

impl Decided for Number {
    type Known = usize;
    type Answer = usize;

    fn ask(known: &usize, plugin: &PolicyPlugin, guests: &dyn Guests) -> Result<(usize, String), Failure> {
        let order = guests.order(plugin, "echo", &[])?;
        Ok((known + order.places.len(), order.because))
    }

    fn made(known: usize, answer: Option<usize>, by_plugin: ByPlugin) -> Self {
        Self {
            known,
            answer: answer.unwrap_or_default(),
            by_plugin,
        }
    }
}

impl Number {
    fn again(&self, guests: Option<&dyn Guests>) -> Result<Self, &PolicyPlugin> {
        self.by_plugin.again(guests, self.known)
    }

    fn failure(&self) -> Option<Failure> {
        self.by_plugin.failed().map(|failed| failed.failure)
    }
}

fn one() -> Arc<Says> {
    Says::order(Ok(crate::call::Order {
        places: vec![7],
        because: "so it says\u{202e}".into(),
    }))
}

fn decide(policy: &mut ByName, second: u64) -> Number {
    policy.decide(Duration::from_secs(second), 4)
}

#[test]
fn a_plugin_decides_and_its_file_is_all_that_it_takes_to_decide_the_same_again() {
    let guests = one();
    let number = decide(&mut guests.policy(), 0);
    assert_eq!((number.answer, number.failure()), (5, None));
    assert_eq!(number.by_plugin.said, Ok("so it says".into()));
    assert_eq!(number.again(Some(&*guests)), Ok(number.clone()));
    assert_eq!(number.again(None), Err(&plugin()));
}

#[test]
fn where_it_fails_the_default_decides() {
    let guests = Says::order(Err(trap()));
    let number = decide(&mut guests.policy(), 0);
    assert_eq!((number.answer, number.failure()), (0, Some(trap())));
    assert_eq!(number.again(Some(&*guests)), Ok(number.clone()));
    // Another file that passes for it is found out.
    let other = number.again(Some(&*one())).unwrap();
    assert_eq!((other.answer, other.failure()), (5, None));
}

#[test]
fn one_that_fails_again_and_again_is_left_alone_for_a_while() {
    let guests = Says::order(Err(trap()));
    let mut policy = guests.policy();
    for _ in 0..5 {
        decide(&mut policy, 1);
    }
    assert_eq!(guests.asked(), 3);
    let paused = decide(&mut policy, 4);
    let pause = Duration::from_secs(7);
    assert_eq!(paused.failure(), Some(Failure::Paused { failures: 3, pause }));
    // That is of the past, and not for the plugin to say again.
    assert_eq!(paused.again(None), Ok(paused.clone()));
    // It has one more chance, and then waits again.
    decide(&mut policy, 11);
    decide(&mut policy, 12);
    assert_eq!(guests.asked(), 4);
    // Another one begins with none of that.
    policy.set_plugin(Some((plugin(), guests.clone())));
    decide(&mut policy, 12);
    assert_eq!(guests.asked(), 5);
}

#[test]
fn what_the_node_could_not_do_is_not_held_against_it() {
    let guests = Says::order(Err(Failure::Busy { most: 2 }));
    let mut policy = guests.policy();
    for _ in 0..9 {
        let number = decide(&mut policy, 1);
        assert_eq!(number.again(None), Ok(number.clone()));
    }
    assert_eq!(guests.asked(), 9);
}

#[test]
fn without_a_plugin_the_default_decides_and_says_so() {
    let number = decide(&mut ByName::new("nobody"), 0);
    assert_eq!((number.answer, &*number.by_plugin.name), (0, "nobody"));
    assert_eq!(
        number.by_plugin.failed().unwrap().to_string(),
        "policy nobody did not decide, the default did: no plugin of this name brings one here"
    );
    assert_eq!(number.again(None), Ok(number.clone()));
}
