use super::*;
use proptest::prelude::*;

fn node(n: u8) -> NodeId {
    NodeId::of_key(&[n])
}

fn contact(from: u8, to: u8, start: i64, end: i64) -> Contact {
    Contact {
        from: node(from),
        to: node(to),
        start: Time::from_unix_ms(start),
        end: Time::from_unix_ms(end),
        rate: Rate(8_000),
        delay: Duration::from_millis(1),
    }
}

fn entry(more: &str) -> String {
    let (from, to) = (node(0), node(1));
    format!(
        "[[contact]]\nfrom = \"{from}\"\nto = \"{to}\"\nstart = \"2026-11-21T10:00:00Z\"\n\
         end = \"2026-11-21T10:05:00Z\"\nrate = \"2 Mbit/s\"\n{more}\n"
    )
}

#[test]
fn an_operators_file_is_read() {
    let plan = ContactPlan::from_toml(&entry("delay = \"12 ms\"\nboth-ways = true")).unwrap();
    assert_eq!(plan.contacts().len(), 2);
    let back = plan.contacts_between(node(1), node(0))[0];
    assert_eq!(
        (back.rate, back.delay),
        (Rate(2_000_000), Duration::from_millis(12))
    );
    assert_eq!(back.capacity(), 75_000_000);

    let plan = ContactPlan::from_toml(&entry("")).unwrap();
    assert_eq!(plan.contacts()[0].delay, Duration::ZERO);
    assert_eq!(ContactPlan::from_toml("").unwrap(), ContactPlan::default());
}

#[test]
fn what_is_wrong_in_a_file_is_named() {
    let error = |text: &str| ContactPlan::from_toml(text).unwrap_err().to_string();
    assert_eq!(
        error(&entry("both-way = true")),
        "unknown key `both-way` at line 7; did you mean `both-ways`?"
    );
    let rate = error(&entry("").replace("2 Mbit/s", "2 MB/s"));
    assert!(
        rate.starts_with("line 6: `contact[0].rate`: `2 MB/s` is not a rate such as `2 Mbit/s`"),
        "{rate}"
    );
    let time = error(&entry("").replace("10:05:00Z", "10:05"));
    assert!(
        time.starts_with("line 5: `contact[0].end`: `2026-11-21T10:05` is not a time"),
        "{time}"
    );
    let id = error(&entry("").replace(&node(1).to_string(), "gateway"));
    assert!(
        id.starts_with("line 3: `contact[0].to`: `gateway` is not an id of 16"),
        "{id}"
    );
    let end = error(&entry("").replace("10:05:00Z", "09:05:00Z"));
    assert!(end.contains("`end` must be later than `start`"), "{end}");
    let bytes = ContactPlan::MAX_TEXT + 1;
    let long = ContactPlan::from_toml(&" ".repeat(bytes));
    assert_eq!(long, Err(PlanError::TooLong { bytes }));
}

#[test]
fn what_cannot_be_a_contact_is_refused() {
    let good = contact(0, 1, 0, 10);
    let refused = |contact| ContactPlan::new(vec![contact]).unwrap_err();
    let same = Contact {
        to: good.from,
        ..good
    };
    assert_eq!(refused(same), PlanError::Loop { contact: same });
    let empty = Contact {
        end: good.start,
        ..good
    };
    assert_eq!(refused(empty), PlanError::Empty { contact: empty });
    let silent = Contact {
        rate: Rate(0),
        ..good
    };
    assert_eq!(refused(silent), PlanError::Rate { contact: silent });
    let far = Contact {
        delay: ContactPlan::MAX_DELAY + Duration::from_micros(1),
        ..good
    };
    assert_eq!(refused(far), PlanError::Delay { contact: far });
    assert!(
        refused(far)
            .to_string()
            .contains("`delay` must be at most 86400 s")
    );
    let late = contact(0, 1, 9, 20);
    assert_eq!(
        ContactPlan::new(vec![late, good]),
        Err(PlanError::Overlap {
            contact: late,
            end: good.end
        })
    );
    assert!(ContactPlan::new(vec![contact(0, 1, 10, 20), good, contact(1, 0, 5, 15)]).is_ok());
    let count = ContactPlan::MAX_CONTACTS + 1;
    assert_eq!(
        ContactPlan::new(vec![good; count]),
        Err(PlanError::TooMany { count })
    );
}

proptest! {
    /// Every query says what a look at each contact says.
    #[test]
    fn queries_agree_with_the_list(
        gaps in proptest::collection::vec((0u8..3, 0u8..3, 0i64..4, 1i64..4), 0..40),
        (from, to, at) in (0u8..3, 0u8..3, -1i64..80),
    ) {
        let mut clock = [[0i64; 3]; 3];
        let mut contacts = Vec::new();
        for (a, b, gap, length) in gaps.into_iter().filter(|(a, b, ..)| a != b) {
            let start = clock[usize::from(a)][usize::from(b)] + gap;
            clock[usize::from(a)][usize::from(b)] = start + length;
            contacts.push(contact(a, b, start, start + length));
        }
        let plan = ContactPlan::new(contacts.clone()).unwrap();
        let (from, to, at) = (node(from), node(to), Time::from_unix_ms(at));
        let pair = |c: &&Contact| c.from == from && c.to == to;
        prop_assert_eq!(plan.open(from, to, at), contacts.iter().filter(pair).find(|c| c.is_open(at)));
        prop_assert_eq!(
            plan.next(from, to, at),
            contacts.iter().filter(pair).filter(|c| c.start > at).min_by_key(|c| c.start)
        );
        prop_assert_eq!(plan.contacts_from(from).len(), contacts.iter().filter(|c| c.from == from).count());
        prop_assert_eq!(
            plan.contacts_of(from).count(),
            contacts.iter().filter(|c| c.from == from || c.to == from).count()
        );
    }
}
