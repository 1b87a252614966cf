use super::table::Table;
use super::*;
use crate::drive::fed::testing::frame;
use karman_fed::secure::{Settings, ToClient, UnmaskRequest};
use karman_types::ErrorKind;

fn denied<T: std::fmt::Debug>(answer: Result<T, TaskError>, says: &str) {
    let error = answer.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Denied, "{error}");
    assert!(error.message.contains(says), "{error}");
}

#[tokio::test]
async fn strangers_on_the_roster_are_refused() {
    let table = Table::new();
    let mut invited = table.invited(1).await;
    invited[2].membership = b"forged".to_vec();
    denied(table.says(0, 1, table.join(&invited)).await, "no member");
    // Nor does anybody join that is not itself invited.
    let others = table.invited(1).await.split_off(1);
    let answer = table.says(0, 1, table.join(&others)).await;
    denied(answer, "is not on the roster");
}

#[tokio::test]
async fn a_node_joins_once_with_what_it_has_shown() {
    let mut table = Table::new();
    let invited = table.invited(1).await;
    assert_eq!(table.invited(1).await, invited, "asked again, it shows the same");
    table.says(0, 1, table.join(&invited)).await.unwrap();
    // A second instance of the same round, in which it would draw other masks.
    let again = "ask it first who it is";
    table.settings.seed = Digest::of(b"other");
    denied(table.says(0, 1, table.join(&invited)).await, again);
    // It shows another number then: those who joined with the first are in a sum that it is not in.
    let shown = table.shows(0, 1).await.unwrap();
    assert_ne!(shown.once, invited[0].once);
    let mut replayed = invited.clone();
    denied(
        table.says(0, 1, table.join(&replayed)).await,
        "does not carry the number",
    );
    replayed[0] = table.shows(0, 1).await.unwrap();
    table.says(0, 1, table.join(&replayed)).await.unwrap();
}

/// The driver has two sums of the same lesson with the same clients, in what it calls two runs: of one it wants the own mask of a
/// client, of the other its pair masks.
#[tokio::test]
async fn what_clients_say_in_one_sum_is_worth_nothing_in_another() {
    let mut table = Table::new();
    let honest = table.before_unmasking(1).await;
    table.run = "0b";
    table.settings.round = table.about(&Table::lesson());
    let foreign = table.before_unmasking(1).await;
    assert_eq!(honest.survivors, foreign.survivors);
    table.run = "0a";
    let said = |request: UnmaskRequest| Step::Said(ToClient::Unmask(request));
    denied(table.says(0, 1, said(foreign)).await, "not signed by it");
    table.says(0, 1, said(honest)).await.unwrap();
}

#[tokio::test]
async fn a_lesson_that_not_all_have_is_not_learnt() {
    let table = Table::new();
    let said = table.before_training(1).await;
    let train = |change: fn(&mut Lesson)| {
        let mut lesson = Table::lesson();
        change(&mut lesson);
        let lesson = Box::new(lesson);
        Step::Train {
            said: said.clone(),
            lesson,
        }
    };
    let changes: [fn(&mut Lesson); 7] = [
        |lesson| lesson.version = 1,
        |lesson| lesson.course.learning_rate = 0.0,
        |lesson| lesson.course.epochs = 2,
        |lesson| lesson.model = Arc::new(vec![("weight".into(), frame(&[0.0, 0.0, 1.0]))]),
        |lesson| lesson.grid = karman_tensor::arithmetic::Grid::new(1e-9, 3).unwrap(),
        |lesson| lesson.weights = karman_fed::strategy::WeightPolicy::Uniform,
        |lesson| lesson.limits.magnitude = 1e-6,
    ];
    for change in changes {
        let answer = table.says(0, 1, train(change)).await;
        denied(
            answer,
            "not the training that the clients of this sum have agreed on",
        );
    }
    let bounded = train(|lesson| lesson.course.most_steps = Some(1));
    let error = table.says(0, 1, bounded).await.unwrap_err();
    assert_eq!(error.field.as_deref(), Some("course.most-steps"), "{error}");
    // The order of its samples is a client's own, and the honest lesson is learnt all the same.
    table
        .says(0, 1, train(|lesson| lesson.course.seed = 8))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_client_with_another_file_of_the_plugin_learns_nothing_of_the_lesson() {
    let mut table = Table::new();
    // It shows one file, and has another one when it is to train.
    let said = table.before_training(1).await;
    table.people[0].plugin = Digest::of(b"another file of that name");
    let lesson = Box::new(Table::lesson());
    let answer = table.says(0, 1, Step::Train { said, lesson }).await;
    denied(
        answer,
        "not the training that the clients of this sum have agreed on",
    );
}

#[tokio::test]
async fn an_update_goes_into_one_sum_and_no_other() {
    let table = Table::new();
    table.before_unmasking(1).await;
    denied(table.shows(0, 1).await, "is in a sum already");
    let next = table.shows(0, 2).await.unwrap();
    // The sum before is left with that.
    let order = table.order(0, 1);
    let left = table.people[0]
        .taker(&order)
        .sums
        .joined(&table.people[0].taker(&order).key, karman_fed::AssignmentId(1));
    assert!(left.is_err());
    // Under another number the node is no other client.
    let mut order = table.order(0, 3);
    order.client = ClientId(9);
    let answer = table.people[0].step(&order, Step::Who).await;
    denied(answer, "gives nothing as another client");
    assert_eq!(table.shows(0, 2).await.unwrap(), next);
}

#[tokio::test]
async fn a_training_that_fits_no_sum_costs_its_client_nothing() {
    let mut table = Table::new();
    table.settings.length = 9;
    let said = table.before_training(1).await;
    let lesson = Box::new(Table::lesson());
    let answer = table.says(0, 1, Step::Train { said, lesson }).await;
    let error = answer.unwrap_err();
    assert_eq!(error.field.as_deref(), Some("settings.length"), "{error}");
    // Nothing was given away.
    table.shows(0, 1).await.unwrap();
}

#[tokio::test]
async fn settings_that_are_none_are_refused() {
    let table = Table::new();
    let invited = table.invited(1).await;
    let join = |change: fn(&mut Settings)| {
        let mut settings = table.settings.clone();
        change(&mut settings);
        let invited = Arc::new(invited.clone());
        Step::Join { settings, invited }
    };
    let narrow = join(|settings| settings.ring = karman_fed::secure::Ring::BITS_32);
    let error = table.says(0, 1, narrow).await.unwrap_err();
    assert_eq!(error.field.as_deref(), Some("settings.ring"), "{error}");
    let alone = join(|settings| settings.least = 1);
    let error = table.says(0, 1, alone).await.unwrap_err();
    assert_eq!(error.field.as_deref(), Some("settings"), "{error}");
    table.says(0, 1, table.join(&invited)).await.unwrap();
}

#[tokio::test]
async fn lists_that_overlap_and_a_second_unmasking_are_refused() {
    let table = Table::new();
    let request = table.before_unmasking(1).await;
    let mut overlapping = request.clone();
    overlapping.dropped = overlapping.survivors.clone();
    let said = |request: &UnmaskRequest| Step::Said(ToClient::Unmask(request.clone()));
    denied(
        table.says(0, 1, said(&overlapping)).await,
        "cannot have survived and dropped out",
    );
    table.says(0, 1, said(&request)).await.unwrap();
    denied(table.says(0, 1, said(&overlapping)).await, "are revealed already");
}

#[tokio::test]
async fn a_masked_update_that_nobody_asks_for_again_takes_no_room() {
    let mut table = Table::new();
    let mut train = Vec::new();
    for run in ["0a", "0b"] {
        table.run = run;
        table.settings.round = table.about(&Table::lesson());
        let said = table.before_training(1).await;
        let lesson = Box::new(Table::lesson());
        train.push(Step::Train { said, lesson });
        table.says(0, 1, train[train.len() - 1].clone()).await.unwrap();
    }
    // Both have room; then the one that was begun last is kept, whatever room there is.
    let sums = &table.people[0].sums;
    sums.keep_within(1 << 20);
    let newest = table.says(0, 1, train[1].clone()).await.unwrap();
    table.run = "0a";
    table.says(0, 1, train[0].clone()).await.unwrap();
    sums.keep_within(0);
    let error = table.says(0, 1, train[0].clone()).await.unwrap_err();
    assert!(error.message.contains("not here any more"), "{error}");
    table.run = "0b";
    assert_eq!(table.says(0, 1, train[1].clone()).await.unwrap(), newest);
    // After its time, too.
    let order = table.order(0, 1);
    let joined = sums
        .joined(&table.people[0].taker(&order).key, karman_fed::AssignmentId(1))
        .unwrap();
    let Step::Train { said, .. } = &train[1] else {
        panic!()
    };
    let asked = crate::drive::fed::sum::joined::mark(said).unwrap();
    joined.lock().forget(Digest::of(b"something else"));
    table.says(0, 1, train[1].clone()).await.unwrap();
    joined.lock().forget(asked);
    assert!(table.says(0, 1, train[1].clone()).await.is_err());
}

#[tokio::test]
async fn a_node_that_drains_goes_on_with_the_sums_that_it_has_joined_and_with_no_other() {
    let table = Table::new();
    let said = table.before_training(1).await;
    let lesson = Box::new(Table::lesson());
    let steps = [
        (Step::Said(said.clone()), true),
        (Step::Train { said, lesson }, true),
        (Step::Who, false),
    ];
    let sums = &table.people[0].sums;
    let driver = NodeId::of_key(b"driver");
    for (step, goes_on) in steps {
        let order = |assignment| {
            let mut order = table.order(0, assignment);
            let step = Box::new(step.clone());
            let assignment = karman_fed::AssignmentId(assignment);
            order.work = Work::Sum { assignment, step };
            order
        };
        assert_eq!(sums.takes_part(driver, &order(1)), goes_on, "{step:?}");
        assert!(!sums.takes_part(driver, &order(2)), "{step:?}");
        assert!(!sums.takes_part(NodeId::of_key(b"other"), &order(1)), "{step:?}");
    }
    let mut order = table.order(0, 1);
    order.work = Work::Describe;
    assert!(!sums.takes_part(driver, &order));
}

#[tokio::test]
async fn a_client_that_trains_or_judges_can_still_join() {
    let table = Table::new();
    let order = table.order(0, 1);
    let taker = table.people[0].taker(&order);
    let _busy = taker.memory.turn(&taker.key).await;
    let invited = table.invited(1).await;
    table.says(0, 1, table.join(&invited)).await.unwrap();
}
