/// A number that a client uses for one round only. It shows it before the round is agreed on ([`Pass::shown`]), the roster carries
/// it ([`super::Member::once`]), and [`super::Client::join`] uses it up.
///
/// The number is no secret. What matters is that it was fresh: all keys and signatures of a round are bound to the numbers of all
/// its members, so that no client is in two rounds that the others could take for one, however often a coordinator asks it. It can
/// be neither copied nor written down.
#[derive(Debug)]
pub struct Pass([u8; 32]);

impl Pass {
    /// A pass with this number, which has to be fresh from the operating system.
    pub const fn new(entropy: [u8; 32]) -> Self {
        Self(entropy)
    }

    /// What the others are shown.
    pub const fn shown(&self) -> [u8; 32] {
        self.0
    }

    pub(crate) const fn use_up(self) -> [u8; 32] {
        self.0
    }
}
