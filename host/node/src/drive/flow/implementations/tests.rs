use super::*;

fn implementation(name: &str, cost: f64) -> Implementation {
    let time = Duration::from_millis(1);
    Implementation {
        name: name.into(),
        binding: Binding::Model("digits-l".into()),
        profile: Profile {
            accuracy: None,
            mean: time,
            p50: time,
            p95: time,
            p99: time,
            cost,
            energy: None,
            samples: 1,
        },
    }
}

#[test]
fn of_others_than_the_one_that_is_measured_stays_what_is_known() {
    let before = ["b", "c"].map(|name| implementation(name, 1.0)).to_vec();
    let measured = |name: &str, cost: Option<f64>| Measured {
        name: name.into(),
        implementation: cost.map(|cost| implementation(name, cost)),
        energy: None,
        error: None,
    };
    let now = |all: &[Measured], only| {
        let now = known_now(before.clone(), all, only);
        let costs = now.iter().map(|known| (known.name.clone(), known.profile.cost));
        costs.collect::<Vec<_>>()
    };
    let [b, c] = ["b", "c"].map(|name| (name.to_owned(), 1.0));
    let new = |name: &str| (name.to_owned(), 2.0);
    let both = [measured("d", Some(2.0)), measured("b", Some(2.0))];
    assert_eq!(now(&both, false), [new("d"), new("b")]);
    assert_eq!(now(&both[1..], true), [new("b"), c.clone()]);
    assert_eq!(now(&both[..1], true), [b, c.clone(), new("d")]);
    // What could not be measured is known no more.
    assert_eq!(now(&[measured("b", None)], true), [c]);
}

#[test]
fn a_price_stays_until_another_one_is_said() {
    let before = [implementation("digits-l@9c01d2e7", 0.002)];
    let said = BTreeMap::from([("digits-l@9c01d2e7".to_owned(), 0.5)]);
    let nothing = BTreeMap::new();
    assert_eq!(price(&said, &before, "digits-l@9c01d2e7"), 0.5);
    assert_eq!(price(&nothing, &before, "digits-l@9c01d2e7"), 0.002);
    assert_eq!(price(&nothing, &before, "digits-s@9c01d2e7"), 0.0);
}

#[test]
fn what_a_call_draws_is_said_else_measured_else_remembered() {
    let mut before = [implementation("digits-l@9c01d2e7", 0.0)];
    before[0].profile.energy = Some(3.0);
    let said = BTreeMap::from([("digits-l@9c01d2e7".to_owned(), 1.0)]);
    let nothing = BTreeMap::new();
    let unknown = || Drawn::unavailable("nobody counts");
    let found = || Drawn {
        joules: Some(2.0),
        origin: EnergyOrigin::Derived,
    };
    let of = |drawn: Drawn, name: &str, said| {
        let drawn = drawn.or_known(name, said, &before);
        (drawn.joules, drawn.origin.to_string())
    };
    let [large, small] = ["digits-l@9c01d2e7", "digits-s@9c01d2e7"];
    assert_eq!(of(found(), large, &said), (Some(1.0), "stated".into()));
    assert_eq!(of(found(), large, &nothing), (Some(2.0), "derived".into()));
    assert_eq!(of(unknown(), large, &nothing), (Some(3.0), "before".into()));
    let none = (None, "unavailable: nobody counts".into());
    assert_eq!(of(unknown(), small, &nothing), none);
}

#[test]
fn of_a_model_that_is_gone_nothing_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let known = || -> Option<Known> { store.profiles().get(RECORD).unwrap() };
    forget_measured(&store, "digits-l").unwrap();
    assert_eq!(known().map(|known| known.len()), None);
    let mut plugin = implementation("b", 1.0);
    plugin.binding = Binding::Plugin("digits-l".into());
    let [a, c] = ["a", "c"].map(|name| implementation(name, 1.0));
    let all = Known::from([
        ("digits".into(), vec![a, plugin.clone()]),
        ("digits/l".into(), vec![c]),
    ]);
    store.profiles().put(RECORD, &all).unwrap();
    forget_measured(&store, "digits-s").unwrap();
    assert_eq!(known().map(|known| known.len()), Some(2));
    forget_measured(&store, "digits-l").unwrap();
    let left = known().unwrap();
    assert_eq!(left.keys().collect::<Vec<_>>(), ["digits"]);
    assert_eq!(left["digits"][0].binding, plugin.binding);
}
