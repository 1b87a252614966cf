use super::*;
use crate::privacy::Rate;
use karman_types::NodeId;

fn settings(clipping: Clipping) -> CentralSettings {
    CentralSettings {
        noise_multiplier: 0.5,
        clipping,
        expected: 100.0,
        delta: 1e-5,
    }
}

fn everybody() -> Participants {
    let population: Vec<_> = (0..100_u8).map(|n| NodeId::of_key(&[n])).collect();
    Participants::poisson(&population, Rate::new(1.0).unwrap(), &[1; 32], 1)
}

#[test]
fn the_mean_has_the_noise_it_says() {
    let mut central = Central::new(settings(Clipping::Fixed { norm: 2.0 })).unwrap();
    let mut sum = central.sum(4_000);
    let update = central.bound().clip(&vec![0.01; 4_000]).unwrap();
    (0..100).for_each(|_| sum.add(&update).unwrap());
    let released = central.release(sum, &everybody(), [3; 32]).unwrap();
    assert!((released.deviation - 0.5 * 2.0 / 100.0).abs() < 1e-6);
    let mean = released.mean.iter().sum::<f64>() / 4_000.0;
    let deviation = (released
        .mean
        .iter()
        .map(|value| (value - mean).powi(2))
        .sum::<f64>()
        / 4_000.0)
        .sqrt();
    assert!(
        (mean - 0.01).abs() < 5.0 * released.deviation / 4_000_f64.sqrt(),
        "{mean}"
    );
    assert!((deviation / released.deviation - 1.0).abs() < 0.06, "{deviation}");
    assert_eq!(released.spent, central.spent().unwrap());
}

#[test]
fn an_adaptive_bound_finds_the_quantile() {
    let adaptive = Clipping::Adaptive {
        first: 0.1,
        quantile: 0.5,
        rate: 0.2,
    };
    let mut central = Central::new(settings(adaptive)).unwrap();
    // Norms are spread evenly from 0 to 10: the median is 5.
    for round in 0..120_u8 {
        let mut sum = central.sum(1);
        for client in 0..100_u8 {
            let norm = f32::from(client) / 10.0;
            sum.add(&central.bound().clip(&[norm]).unwrap()).unwrap();
        }
        central.release(sum, &everybody(), [round; 32]).unwrap();
    }
    assert!(
        (4.0..6.0).contains(&central.bound().norm()),
        "{:?}",
        central.bound()
    );
    assert_eq!(central.spent().unwrap().rounds, 120);
}

#[test]
fn two_noises_cost_as_much_as_one() {
    let adaptive = Clipping::Adaptive {
        first: 0.1,
        quantile: 0.5,
        rate: 0.2,
    };
    let central = Central::new(settings(adaptive)).unwrap();
    let (sum, count) = (central.update_noise().unwrap(), central.count_noise());
    assert!((sum.powi(-2) + count.powi(-2) - 4.0).abs() < 1e-12);
    let few = CentralSettings {
        noise_multiplier: 3.0,
        expected: 20.0,
        ..settings(adaptive)
    };
    assert!(matches!(
        Central::new(few),
        Err(CentralError::TooFewToAdapt { .. })
    ));
}

#[test]
fn what_cannot_be_private_is_refused() {
    let fixed = settings(Clipping::Fixed { norm: 1.0 });
    let bad = [
        CentralSettings {
            noise_multiplier: 0.0,
            ..fixed
        },
        CentralSettings {
            noise_multiplier: f64::NAN,
            ..fixed
        },
        CentralSettings {
            noise_multiplier: 65.0,
            ..fixed
        },
        CentralSettings {
            expected: 0.5,
            ..fixed
        },
        CentralSettings { delta: 1.0, ..fixed },
        CentralSettings {
            clipping: Clipping::Fixed { norm: -1.0 },
            ..fixed
        },
        CentralSettings {
            clipping: Clipping::Adaptive {
                first: 1.0,
                quantile: 1.5,
                rate: 0.2,
            },
            ..fixed
        },
    ];
    for bad in bad {
        assert!(Central::new(bad).is_err(), "{bad:?}");
    }
    let central = Central::new(fixed).unwrap();
    let mut sum = central.sum(2);
    let long = Clipped {
        units: vec![i32::MAX, 0],
        within: true,
    };
    assert!(matches!(
        sum.add(&long),
        Err(CentralError::Clip(ClipError::TooLong { .. }))
    ));
    let short = Clipped {
        units: vec![1],
        within: true,
    };
    assert_eq!(sum.add(&short), Err(CentralError::Length { have: 1, need: 2 }));
    assert_eq!(sum, central.sum(2));
}
