use std::borrow::Cow;

/// One dispatch of one shader.
#[derive(Clone, Debug)]
pub struct Pass {
    /// What it is called in messages.
    pub name: &'static str,
    /// Its WGSL, without its constants.
    pub source: Cow<'static, str>,
    /// Constants that are put before it: sizes of tiles, which of several things it does.
    pub constants: Vec<(&'static str, u32)>,
    /// What its uniform block (binding 0) holds.
    pub parameters: Vec<u32>,
    /// Which arguments are bound, in the order of bindings 1, 2, …; the last is written, the others are read.
    pub bindings: Vec<usize>,
    /// Workgroups in x, y and z.
    pub workgroups: [u32; 3],
}

/// The most workgroups of one dimension that every device allows.
const MOST_WORKGROUPS: u32 = 65_535;

impl Pass {
    /// The shader with its constants.
    pub fn wgsl(&self) -> String {
        let constants = self.constants.iter();
        let mut text: String = constants
            .map(|(name, value)| format!("const {name}: u32 = {value}u;\n"))
            .collect();
        text.push_str(&self.source);
        text
    }
}

/// So many workgroups, laid out in two dimensions where one does not hold them. The shader takes the number of a group as
/// `y * groups.x + x` and lets those beyond the end do nothing.
pub(crate) fn grid(groups: u64) -> [u32; 3] {
    let groups = groups.max(1);
    let rows = groups.div_ceil(u64::from(MOST_WORKGROUPS));
    [groups.div_ceil(rows) as u32, rows as u32, 1]
}

/// Threads of a workgroup in the shaders that go over elements or rows.
pub(crate) const THREADS: u32 = 256;

/// The workgroups for so many elements with one thread each.
pub(crate) fn each(elements: u64) -> [u32; 3] {
    grid(elements.div_ceil(u64::from(THREADS)))
}

#[cfg(test)]
mod tests {
    use super::*;

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
