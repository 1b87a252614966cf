use super::*;

fn error(rest: &str) -> String {
    Run::from_toml(&format!("name = 'x'\nrounds = 1\n{rest}"))
        .unwrap_err()
        .to_string()
}

#[test]
fn what_it_writes_it_reads() {
    let text = "name = 'x'\nrounds = 3\nmodel = 'flood-s'\nweights = 'uniform'\n[pace]\nmode = 'buffered'\nat-once = 20\n\
                [strategy]\nname = 'fed-avg-m'\nmomentum = 0.5\n[selection]\nname = 'bandit'\nexplore = 0.2\n\
                [encoding]\nfixed = { top-k = 10 }\n";
    let run = Run::from_toml(text).unwrap();
    assert_eq!(run.pace.minimum(), 10);
    assert_eq!(run.encoding, EncodingPolicy::Fixed(Encoding::TopK(10)));
    let written = cbor4ii::serde::to_vec(Vec::new(), &run).unwrap();
    assert_eq!(cbor4ii::serde::from_slice::<Run>(&written).unwrap(), run);
}

#[test]
fn misspelt_keys_are_answered_with_the_nearest() {
    let in_strategy = error("[strategy]\nname = 'fed-avg'\nrat = 1\n");
    assert!(
        in_strategy.contains("unknown key `rat`") && in_strategy.contains("`rate`"),
        "{in_strategy}"
    );
    let in_plugin = error("[strategy]\nname = 'plugin'\nplugin = 'mine'\npropertys = { a = '1' }\n");
    assert!(in_plugin.contains("`properties`"), "{in_plugin}");
    let in_pace = error("[pace]\nmode = 'synchronous'\nclient = 3\n");
    assert!(in_pace.contains("did you mean `clients`"), "{in_pace}");
    let rule = error("[strategy]\nname = 'fed-avgm'\n");
    assert!(rule.contains("fed-avg-m"), "{rule}");
}

#[test]
fn numbers_have_bounds() {
    for (text, field) in [
        ("[pace]\nmode = 'synchronous'\nclients = 0\n", "pace.clients"),
        (
            "[pace]\nmode = 'synchronous'\nclients = 3\nminimum = 4\n",
            "pace.minimum",
        ),
        (
            "[pace]\nmode = 'synchronous'\nclients = 3\ntimeout = '0 s'\n",
            "pace.timeout",
        ),
        ("[training]\nlearning-rate = nan\n", "training.learning-rate"),
        (
            "[training]\nlearning-rate-decay = 1.5\n",
            "training.learning-rate-decay",
        ),
        ("[limits]\nmagnitude = inf\n", "limits.magnitude"),
        (
            "[strategy]\nname = 'trimmed-mean'\nshare = 0.5\n",
            "strategy.share",
        ),
        (
            "[selection]\nname = 'bandit'\ndiscount = 2.0\n",
            "selection.discount",
        ),
        ("[strategy]\nname = 'bulyan'\nliars = 2\n", "pace.clients"),
        (
            "weights = 'uniform'\n[privacy]\nnoise-multiplier = 0\nclipping = { kind = 'fixed', norm = 1 }\n",
            "noise multiplier",
        ),
        (
            "weights = 'uniform'\n[privacy]\nrate = 0.5\nnoise-multiplier = 1\nclipping = { kind = 'fixed', norm = 1 }\n",
            "start-with",
        ),
        (
            "weights = 'uniform'\n[encoding]\nfixed = 'int8'\n\
             [privacy]\nnoise-multiplier = 1\nclipping = { kind = 'fixed', norm = 1 }\n",
            "no `[encoding]`",
        ),
        ("[secure-sum]\nleast = 1\n", "secure-sum.least"),
        (
            "[secure-sum]\n[pace]\nmode = 'synchronous'\nclients = 1001\n",
            "pace.clients",
        ),
        ("[secure-sum]\n[strategy]\nname = 'median'\n", "steps by a mean"),
        (
            "[secure-sum]\n[strategy]\nname = 'plugin'\nplugin = 'mine'\n",
            "steps by a mean",
        ),
        (
            "[swarm]\n[strategy]\nname = 'plugin'\nplugin = 'mine'\n",
            "steps by a mean",
        ),
        (
            "weights = 'uniform'\n[strategy]\nname = 'plugin'\nplugin = 'mine'\n\
             [privacy]\nnoise-multiplier = 1\nclipping = { kind = 'fixed', norm = 1 }\n",
            "steps by a mean",
        ),
        ("[secure-sum]\n[encoding]\nfixed = 'int8'\n", "`[encoding]`"),
        ("[secure-sum]\n[clients]\nsimulated = 9\n", "clients on nodes"),
        (
            "[secure-sum]\n[selection]\nname = 'bandit'\n",
            "another selection",
        ),
        (
            "[privacy]\nnoise-multiplier = 1\nclipping = { kind = 'fixed', norm = 1 }\n",
            "weights",
        ),
    ] {
        assert!(error(text).contains(field), "{text}: {}", error(text));
    }
    for strategy in ["name = 'krum'", "name = 'plugin'\nplugin = 'mine'"] {
        let refused = error(&format!(
            "[pace]\nmode = 'buffered'\nat-once = 9\n[strategy]\n{strategy}\n"
        ));
        assert!(refused.contains("synchronous"), "{refused}");
    }
}
