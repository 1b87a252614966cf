use super::{Pool, RouteError, Routed, Router, View, bounded};
use serde::{Deserialize, Serialize};

/// A fixed number of replicas, and all requests here or, as far as there is room, all above.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Constant {
    pool: Pool,
    replicas: u32,
    above: bool,
}

impl Constant {
    /// This many replicas, and everything here.
    ///
    /// # Errors
    /// No replica, or more than the pool may have.
    pub fn here(pool: Pool, replicas: u32) -> Result<Self, RouteError> {
        pool.check()?;
        let fits = replicas >= 1 && replicas <= pool.most;
        bounded(
            "replicas",
            replicas.into(),
            fits,
            "from 1 to the most of the pool",
        )?;
        Ok(Self {
            pool,
            replicas,
            above: false,
        })
    }

    /// One replica, for what does not find room above.
    ///
    /// # Errors
    /// A pool without replicas.
    pub fn above(pool: Pool) -> Result<Self, RouteError> {
        Ok(Self {
            above: true,
            ..Self::here(pool, 1)?
        })
    }
}

impl Router for Constant {
    fn name(&self) -> &'static str {
        if self.above { "always_above" } else { "constant" }
    }

    fn route(&mut self, view: &View) -> Routed {
        Routed {
            above: self.above && view.above < self.pool.most_above,
            expected: 0.0,
            limit: f64::INFINITY,
        }
    }

    fn desired(&mut self, _: &View) -> u32 {
        self.replicas
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{POOL, view};
    use super::*;

    #[test]
    fn nothing_moves_it() {
        let mut here = Constant::here(POOL, 3).unwrap();
        assert_eq!(
            (
                here.desired(&view(0.0, 1, 99)),
                here.route(&view(0.0, 1, 99)).above
            ),
            (3, false)
        );
        let mut above = Constant::above(POOL).unwrap();
        assert!(above.route(&view(0.0, 1, 0)).above);
        assert!(
            !above
                .route(&View {
                    above: 6,
                    ..view(0.0, 1, 0)
                })
                .above
        );
        assert_eq!(Constant::here(POOL, 7).unwrap_err().field, "replicas");
    }
}
