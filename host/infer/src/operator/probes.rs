use super::Operator;
use karman_types::Digest;

impl Operator {
    /// What has to be timed on a runner to know it: for each kind, work that grows from next to nothing to more than a layer of a
    /// common network has. Some seconds for each runner.
    pub fn probes() -> Vec<Self> {
        let square = |rows: Option<u32>| {
            move |size: u32| Self::MatMul {
                rows: rows.unwrap_or(size),
                inner: size,
                columns: size,
            }
        };
        let pointwise = |(channels, side)| Self::convolution([channels, channels, side, 1, 1], 1);
        let spatial = |(channels, side)| Self::convolution([channels, channels, side, 3, 1], 1);
        let depthwise = |(channels, side)| Self::convolution([channels, channels, side, 3, 1], channels);
        let vectors = [
            8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
        ];
        let few = [8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024];
        let many = [10, 14, 20, 28, 40, 56, 80, 112, 160, 224, 320, 448];
        let elements = [64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576];
        let maps = [
            (4, 4),
            (4, 8),
            (8, 8),
            (8, 14),
            (16, 14),
            (32, 14),
            (32, 28),
            (64, 28),
        ];
        let deeper = [(64, 56), (128, 56)];
        let wide = [
            (8, 8),
            (16, 8),
            (16, 14),
            (32, 14),
            (64, 14),
            (64, 28),
            (128, 28),
            (128, 56),
        ];
        vectors
            .map(square(Some(1)))
            .into_iter()
            .chain(few.map(square(Some(4))))
            .chain(many.map(square(None)))
            .chain(maps.map(pointwise))
            .chain(deeper.map(pointwise))
            .chain(maps.map(spatial))
            .chain(wide.map(depthwise))
            .chain(elements.map(|elements| Self::Relu { elements }))
            .chain(elements.map(|elements| Self::Add { elements }))
            .collect()
    }

    /// What tells these probes from those of another version: a profile that was made of others says less, or something else.
    pub fn probes_digest() -> Digest {
        digest(&Self::probes())
    }
}

fn digest(probes: &[Operator]) -> Digest {
    let names: Vec<String> = probes.iter().map(ToString::to_string).collect();
    Digest::of(names.join("\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::super::{Convolution, Kind};
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn other_probes_have_another_digest() {
        let probes = Operator::probes();
        assert_eq!(digest(&probes), Operator::probes_digest());
        assert_ne!(digest(&probes[1..]), Operator::probes_digest());
        for (at, probe) in probes.iter().enumerate() {
            let mut others = probes.clone();
            others[at] = match *probe {
                Operator::MatMul { rows, inner, columns } => Operator::MatMul {
                    rows,
                    inner,
                    columns: columns + 1,
                },
                Operator::Convolution(shape) => Operator::Convolution(Convolution { stride: 2, ..shape }),
                Operator::Relu { elements } => Operator::Add { elements },
                Operator::Add { elements } => Operator::Relu { elements },
            };
            assert_ne!(digest(&others), Operator::probes_digest(), "{probe}");
        }
    }

    #[test]
    fn each_kind_has_a_ladder_that_grows() {
        let mut ladders: BTreeMap<Kind, Vec<(f64, f64)>> = BTreeMap::new();
        for probe in Operator::probes() {
            ladders
                .entry(probe.kind())
                .or_default()
                .push((probe.flops(), probe.bytes()));
        }
        assert_eq!(ladders.len(), 8);
        for (kind, ladder) in ladders {
            assert!(ladder.len() >= 8, "{kind:?}");
            for pair in ladder.windows(2) {
                assert!(
                    pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1,
                    "{kind:?}: {pair:?}"
                );
            }
            assert!(ladder[ladder.len() - 1].1 > 100.0 * ladder[0].1, "{kind:?}");
        }
    }
}
