use super::*;

const SHAPES: [[u32; 2]; 3] = [[4, 6], [1, 4], [5, 4]];
const LENGTH: usize = 24 + 4 + 20;

fn run(rest: &str) -> Run {
    let text = format!(
        "name = 'x'\nrounds = 1\n[low-rank]\narrays = ['array 2', 'array 0']\nranks = [1, 3]\n{rest}"
    );
    Run::from_toml(&text).unwrap()
}

fn layout() -> Layout {
    Layout::of_shapes(SHAPES).unwrap()
}

fn model() -> Vec<f32> {
    (0..LENGTH).map(|place| place as f32 / 10.0).collect()
}

fn adapting(run: &Run) -> Adapting {
    Adapting::new(run, &layout(), &model()).unwrap().unwrap()
}

/// What a training changes: drawn.
fn changes(adapting: &Adapting, rank: usize, seed: u64) -> Vec<f32> {
    let mut random = Rng::with_seed(seed);
    (0..adapting.numbers(rank)).map(|_| random.f32() - 0.5).collect()
}

fn adapters(adapting: &Adapting, rank: usize, seed: u64) -> Vec<Adapter> {
    let trained = adapting
        .trained(rank, seed, &changes(adapting, rank, seed))
        .unwrap();
    let names: Vec<&str> = trained.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["array 2", "array 0"]);
    trained.into_iter().map(|(_, adapter)| adapter).collect()
}

fn near(one: &[f32], other: &[f32]) {
    assert_eq!(one.len(), other.len());
    for (place, (x, y)) in one.iter().zip(other).enumerate() {
        assert!((x - y).abs() < 1e-4, "number {place}: {x} instead of {y}");
    }
}

#[test]
fn factors_are_arrays_with_names_of_their_own() {
    let adapting = adapting(&run(""));
    let layout = adapting.layout(3).unwrap();
    let said: Vec<(&str, &[u32])> = layout
        .arrays()
        .iter()
        .map(|array| (array.name.as_str(), array.shape.dims()))
        .collect();
    assert_eq!(
        said,
        [
            ("array 2.lora-a", &[3, 4][..]),
            ("array 2.lora-b", &[5, 3][..]),
            ("array 0.lora-a", &[3, 6][..]),
            ("array 0.lora-b", &[4, 3][..]),
        ]
    );
    assert_eq!(layout.length(), adapting.numbers(3));
    assert_eq!(adapting.start(3, 7).len(), adapting.numbers(3));
}

#[test]
fn new_adapters_add_nothing_and_their_seed_draws_them() {
    let adapting = adapting(&run(""));
    let before = adapting.trained(3, 7, &vec![0.0; adapting.numbers(3)]).unwrap();
    assert!(
        before
            .iter()
            .all(|(_, it)| it.product().iter().all(|x| *x == 0.0))
    );
    assert!(before.iter().all(|(_, it)| it.a().iter().any(|x| *x != 0.0)));
    assert_eq!(adapting.start(3, 7), adapting.start(3, 7));
    assert_ne!(adapting.start(3, 7), adapting.start(3, 8));
}

/// With everything kept, the model changes by the weighted mean of what each client's adapters add, and nowhere else.
#[test]
fn a_stack_of_unequal_ranks_changes_the_model_by_the_mean_of_the_products() {
    let run = run("threshold = 1.0\n");
    let adapting = adapting(&run);
    let (one, other) = (adapters(&adapting, 1, 5), adapters(&adapting, 3, 6));
    let updates = [(1.0, &one[..]), (3.0, &other[..])];
    let settings = run.low_rank.as_ref().unwrap();
    let Stepped {
        model: after,
        next,
        rank,
    } = adapting.step(settings, &model(), &updates).unwrap();
    // The stack has four ranks, for which both matrices have room.
    assert_eq!(rank, 4);
    assert_eq!(next, adapting);
    let mut expected = model();
    for (matrix, at) in [(0, 28), (1, 0)] {
        let products = one[matrix].product().into_iter().zip(other[matrix].product());
        for (place, (x, y)) in products.enumerate() {
            expected[at + place] += 0.25 * x + 0.75 * y;
        }
    }
    near(&after, &expected);
    assert_eq!(after[24..28], model()[24..28]);
    assert_eq!(adapting.beneath(&model().into())[..], model()[..]);
}

/// Nested adapters go on from round to round; ranks that nobody has trained stay as they were.
#[test]
fn segments_are_means_over_those_who_have_them() {
    let run = run("rule = 'prelort'\n");
    let settings = run.low_rank.as_ref().unwrap();
    let adapting = adapting(&run);
    // Whatever their seeds: everybody begins with the prefix of the same.
    assert_eq!(adapting.start(3, 7), adapting.start(3, 8));
    let (one, other) = (adapters(&adapting, 1, 5), adapters(&adapting, 3, 6));
    let updates = [(1.0, &one[..]), (3.0, &other[..])];
    let Stepped {
        model: first,
        next,
        rank,
    } = adapting.step(settings, &model(), &updates).unwrap();
    assert_eq!(rank, 3);
    // Beneath them the model is as it began.
    assert_eq!(next.beneath(&first.clone().into())[..], model()[..]);
    let all = next.trained(3, 0, &vec![0.0; next.numbers(3)]).unwrap();
    let (_, of_last) = &all[0];
    near(
        &of_last.a()[..4],
        &(0..4)
            .map(|k| 0.25 * one[0].a()[k] + 0.75 * other[0].a()[k])
            .collect::<Vec<_>>(),
    );
    near(&of_last.a()[4..], &other[0].a()[4..]);
    let mut expected = model();
    expected[28..]
        .iter_mut()
        .zip(of_last.product())
        .for_each(|(x, by)| *x += by);
    near(&first[28..], &expected[28..]);

    // In the next round only one of the least rank answers.
    let small = adapters(&next, 1, 9);
    let last = next.step(settings, &first, &[(1.0, &small[..])]).unwrap();
    assert_eq!(last.rank, 1);
    let last = last.next;
    let kept = last.trained(3, 0, &vec![0.0; last.numbers(3)]).unwrap();
    assert_eq!(kept[0].1.a()[4..], of_last.a()[4..]);
    near(&kept[0].1.a()[..4], small[0].a());
}

#[test]
fn arrays_that_cannot_have_adapters_are_named() {
    let refused = |arrays: &str, ranks: &str| {
        let text = format!("name = 'x'\nrounds = 1\n[low-rank]\narrays = {arrays}\nranks = {ranks}\n");
        let run = Run::from_toml(&text).unwrap();
        let layout =
            Layout::of_shapes([vec![4, 6], vec![7]].map(|dims| karman_tensor::Shape::new(&dims).unwrap()));
        Adapting::new(&run, &layout.unwrap(), &[0.0; 31])
            .unwrap_err()
            .to_string()
    };
    assert!(refused("['array 9']", "[1]").contains("no such array; it has `array 0`, `array 1`"));
    assert!(refused("['array 1']", "[1]").contains("adapters are of matrices"));
    let large = refused("['array 0']", "[1, 5]");
    assert!(large.contains("`array 0`") && large.contains("rank 5"), "{large}");
}

#[test]
fn a_checkpoint_of_another_run_is_refused() {
    let (florist, prelort) = (run(""), run("rule = 'prelort'\n"));
    let kept = adapting(&prelort);
    let check = |kept: Option<&Adapting>, run: &Run| Adapting::check(kept, run, &layout());
    assert_eq!(check(Some(&kept), &prelort), Ok(()));
    assert_eq!(check(Some(&kept), &florist), Err(StartError::Adapters));
    assert_eq!(check(None, &florist), Err(StartError::Adapters));
    let whole = Run::from_toml("name = 'x'\nrounds = 1\n").unwrap();
    assert_eq!(check(None, &whole), Ok(()));
    assert_eq!(check(Some(&kept), &whole), Err(StartError::Adapters));
}
