use crate::error::GpuError;
use std::borrow::Cow;
use std::fmt::Write;

/// What a GPU is told to do, without constants: the same in two languages.
#[derive(Clone, Debug)]
pub struct Source {
    /// As WGSL; nothing where only CUDA devices do it.
    pub wgsl: Cow<'static, str>,
    /// As CUDA C++.
    pub cuda: Cow<'static, str>,
}

impl Source {
    pub(super) fn new(wgsl: &'static str, cuda: &'static str) -> Self {
        Self {
            wgsl: wgsl.into(),
            cuda: cuda.into(),
        }
    }
}

/// One dispatch of one shader.
#[derive(Clone, Debug)]
pub struct Pass {
    /// What it is called in messages.
    pub name: &'static str,
    /// What it does, without its constants.
    pub source: Source,
    /// Constants that are put before it: sizes of tiles, which of several things it does.
    pub constants: Vec<(&'static str, u32)>,
    /// What its uniform block (binding 0) holds.
    pub parameters: Vec<u32>,
    /// Which arguments are bound, in the order of bindings 1, 2, …; the last is written, the others are read.
    pub bindings: Vec<usize>,
    /// Threads of a workgroup in x, y and z.
    pub threads: [u32; 3],
    /// Workgroups in x, y and z.
    pub workgroups: [u32; 3],
}

/// The most workgroups of one dimension that every device allows.
const MOST_WORKGROUPS: u32 = 65_535;

impl Pass {
    /// Whether a GPU can count its workgroups: drivers refuse more with words about shaders, or are lost.
    pub(super) fn check(&self) -> Result<(), GpuError> {
        match self.workgroups.into_iter().max() {
            Some(most) if most > MOST_WORKGROUPS => Err(GpuError::Limit {
                what: format!("workgroups of `{}` in one dimension", self.name),
                asked: u64::from(most),
                most: u64::from(MOST_WORKGROUPS),
            }),
            _ => Ok(()),
        }
    }

    /// Whether its shader takes half precision out of words, or puts it into them: that is no matter of course with every driver.
    pub(crate) fn takes_halves(&self) -> bool {
        self.source.wgsl.contains("2x16float")
    }

    /// The shader with its constants.
    pub fn wgsl(&self) -> String {
        let constants = self.constants.iter();
        let mut text: String = constants
            .map(|(name, value)| format!("const {name}: u32 = {value}u;\n"))
            .collect();
        text.push_str(&self.source.wgsl);
        text
    }

    /// The same as CUDA C++: a function `kernel` that takes its parameters and the addresses of its buffers, each as one structure.
    /// That these are as long as what is passed is checked when it is compiled.
    pub fn cuda(&self) -> String {
        let mut text = String::new();
        // A `String` takes all that is written to it.
        for (name, value) in &self.constants {
            let _ = writeln!(text, "constexpr unsigned {name} = {value};");
        }
        text.push_str(cuda!("prelude"));
        text.push_str(&self.source.cuda);
        let (parameters, buffers) = (4 * self.parameters.len(), 8 * self.bindings.len());
        let _ = writeln!(
            text,
            "static_assert(sizeof(Parameters) == {parameters} && sizeof(Buffers) == {buffers}, \"as it is passed\");"
        );
        text
    }
}

/// This many workgroups, laid out in two dimensions where one does not hold them. The shader takes the number of a group as
/// `y * groups.x + x` and lets those beyond the end do nothing.
pub(crate) fn grid(groups: u64) -> [u32; 3] {
    let groups = groups.max(1);
    let rows = groups.div_ceil(u64::from(MOST_WORKGROUPS));
    [groups.div_ceil(rows) as u32, rows as u32, 1]
}

/// Threads of a workgroup in the shaders that go over elements or rows.
pub(crate) const THREADS: u32 = 256;

/// The same along x, y and z.
pub(crate) const EACH: [u32; 3] = [THREADS, 1, 1];

/// The workgroups for this many elements with one thread each.
pub(crate) fn each(elements: u64) -> [u32; 3] {
    grid(elements.div_ceil(u64::from(THREADS)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::matrix;
    use crate::kernel::Kernel;
    use crate::tune::CANDIDATES;
    use naga::valid::{Capabilities, ValidationFlags, Validator};
    use naga::{AddressSpace, StorageAccess};
    use std::collections::BTreeSet;

    /// The longest shapes that are legal, in each dimension that becomes workgroups.
    const LONG: [&str; 10] = [
        r#"{"kernel": "gemm", "m": 1048576, "n": 1, "k": 1}"#,
        r#"{"kernel": "gemm", "m": 5, "n": 1048576, "k": 1}"#,
        r#"{"kernel": "gemm", "m": 1, "n": 1048576, "k": 1}"#,
        r#"{"kernel": "quantised-gemm", "m": 4, "n": 1048576, "k": 8, "group": 8, "bits": 8}"#,
        r#"{"kernel": "quantised-gemm", "m": 1048576, "n": 1, "k": 8, "group": 8, "bits": 4}"#,
        r#"{"kernel": "integer-gemm", "m": 1, "n": 1048576, "k": 4}"#,
        r#"{"kernel": "integer-gemm", "m": 1048576, "n": 1, "k": 4}"#,
        r#"{"kernel": "convolution", "channels": 1, "height": 2048, "width": 2048, "filters": 8, "kernel-height": 3,
            "kernel-width": 3, "padding": 1}"#,
        r#"{"kernel": "convolution", "batch": 1048576, "channels": 1, "height": 1, "width": 1, "filters": 8,
            "kernel-height": 1, "kernel-width": 1}"#,
        r#"{"kernel": "top-k", "length": 268435456, "keep": 268435456}"#,
    ];

    #[test]
    fn what_is_legal_fits_into_the_workgroups_of_every_gpu() {
        for text in LONG {
            let kernel: Kernel = serde_json::from_str(text).unwrap();
            for tile in CANDIDATES {
                let passes = kernel.passes(tile).unwrap();
                assert!(passes.iter().all(|pass| pass.check().is_ok()), "{text} {tile:?}");
            }
        }
    }

    /// With a GPU at hand or without: the shaders of all shapes that are checked are WGSL, and each writes its last buffer only.
    #[test]
    fn every_shader_is_valid_and_writes_one_buffer() {
        let passes = matrix()
            .into_iter()
            .flat_map(|kernel| kernel.passes(CANDIDATES[0]).unwrap());
        // Halves are read from words and written to them; no shader computes with them.
        let capabilities = Capabilities::SHADER_FLOAT16_IN_FLOAT32;
        let shaders: BTreeSet<_> = passes
            .map(|pass| (pass.wgsl(), pass.bindings.len(), pass.threads))
            .collect();
        for (wgsl, last, threads) in shaders {
            let parsed = naga::front::wgsl::parse_str(&wgsl).map_err(|error| error.message().to_owned());
            let module = parsed.unwrap_or_else(|why| panic!("{why}:\n{wgsl}"));
            let valid = Validator::new(ValidationFlags::all(), capabilities).validate(&module);
            assert!(valid.is_ok(), "{:?}:\n{wgsl}", valid.err());
            // What CUDA devices are told apart is here part of the text.
            assert_eq!(module.entry_points[0].workgroup_size, threads, "{wgsl}");
            for (_, variable) in module.global_variables.iter() {
                if let (AddressSpace::Storage { access }, Some(bound)) = (variable.space, &variable.binding) {
                    let written = access.contains(StorageAccess::STORE);
                    assert_eq!(
                        written,
                        bound.binding as usize == last,
                        "{:?}:\n{wgsl}",
                        variable.name
                    );
                }
            }
        }
    }

    #[test]
    fn what_takes_half_precision_is_known() {
        for (text, takes) in [
            (r#"{"kernel": "gemm", "m": 9, "n": 9, "k": 9}"#, false),
            (
                r#"{"kernel": "gemm", "m": 9, "n": 9, "k": 9, "half": true}"#,
                true,
            ),
            (
                r#"{"kernel": "gemm", "m": 1, "n": 9, "k": 9, "half": true}"#,
                true,
            ),
            (
                r#"{"kernel": "quantised-gemm", "m": 1, "n": 8, "k": 8, "group": 8, "bits": 8}"#,
                true,
            ),
            (
                r#"{"kernel": "encode", "format": "f16", "rows": 1, "columns": 3}"#,
                true,
            ),
            (r#"{"kernel": "top-k", "length": 3, "keep": 1}"#, false),
        ] {
            let kernel: Kernel = serde_json::from_str(text).unwrap();
            let passes = kernel.passes(CANDIDATES[0]).unwrap();
            assert_eq!(passes.iter().any(Pass::takes_halves), takes, "{text}");
        }
    }

    #[test]
    fn more_workgroups_than_a_gpu_counts_are_a_limit() {
        let pass = |workgroups| Pass {
            name: "long",
            source: Source::new("", ""),
            constants: vec![],
            parameters: vec![],
            bindings: vec![],
            threads: EACH,
            workgroups,
        };
        assert_eq!(pass([1, 65_535, 1]).check(), Ok(()));
        let refused = pass([1, 65_536, 1]).check().unwrap_err();
        assert!(
            matches!(refused, GpuError::Limit { asked: 65_536, .. }),
            "{refused}"
        );
    }

    #[test]
    fn a_grid_holds_all_its_groups_and_few_more() {
        for groups in [0, 1, 65_535, 65_536, 1 << 20, (1 << 28) + 7] {
            let [x, y, z] = grid(groups);
            let all = u64::from(x) * u64::from(y);
            assert!(
                all >= groups && all < groups + u64::from(y) + 1 && z == 1,
                "{groups}"
            );
            assert!((1..=MOST_WORKGROUPS).contains(&x) && (1..=MOST_WORKGROUPS).contains(&y));
        }
    }
}
