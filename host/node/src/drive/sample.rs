/// Takes the first few of each second.
pub(super) struct Sample {
    most: u32,
    second: u64,
    taken: u32,
}

impl Sample {
    pub(super) const fn of(most: u32) -> Self {
        let (second, taken) = (0, 0);
        Self { most, second, taken }
    }

    pub(super) fn takes(&mut self, second: u64) -> bool {
        if self.second != second {
            (self.second, self.taken) = (second, 0);
        }
        self.taken = self.taken.saturating_add(1);
        self.taken <= self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_few_of_a_second_are_taken() {
        for most in [2, 20] {
            let mut sample = Sample::of(most);
            let mut taken = |second| (0..100).filter(|_| sample.takes(second)).count();
            assert_eq!([taken(0), taken(7), taken(8)], [most as usize; 3]);
        }
    }
}
