//! What the two sides of the gate say to each other.

use crate::wire::{Frame, WireError};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// Memberships are a few hundred bytes; revocations 10,000 entries at most.
pub(crate) const HELLO: Frame = Frame::new("hello", 16 << 10);
pub(crate) const WELCOME: Frame = Frame::new("welcome", 8 << 20);

/// Whether these bytes are what one says at the gate who comes, who answers, or who takes leave.
///
/// # Errors
/// When they are none of these.
pub fn read_greeting(bytes: &[u8]) -> Result<(), WireError> {
    let hello = HELLO.decode::<Hello>(bytes).map(drop);
    let reply = || WELCOME.decode::<Reply>(bytes).map(drop);
    let thanks = || WELCOME.decode::<Thanks>(bytes).map(drop);
    hello.or_else(|_| reply()).or_else(|_| thanks())
}

#[derive(Deserialize, Serialize)]
pub(crate) struct Hello {
    pub(crate) version: u16,
    pub(crate) credential: Credential,
    pub(crate) revocations: [u8; 32],
    pub(crate) about: About,
    /// The root keys that the mesh had, where there were others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lineage: Option<ByteBuf>,
}

/// What a node tells of itself besides who it is.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct About {
    /// The port where it takes calls directly.
    pub(crate) calls: Option<u16>,
    /// Drawn when it was started: another one tells that all connections before are dead.
    pub(crate) run: u64,
    /// The number of the charter of the keepers that it knows, 0 where it knows none: who knows another one asks. Nothing before it has
    /// looked.
    pub(crate) charter: Option<u64>,
}

/// The proof of membership that a node shows at the gate.
#[derive(Clone, Deserialize, Serialize)]
pub(crate) enum Credential {
    Membership(ByteBuf),
    /// Its word. A newcomer shows it to one that has proved to be an issuer.
    Invitation(String),
    /// It has an invitation, and asks for a proof that the other side is an issuer of the mesh.
    Invited,
    /// It has an invitation, and asks to be led to the issuer with this key, which the other side has a connection with.
    Through(ByteBuf),
}

#[derive(Deserialize, Serialize)]
pub(crate) enum Reply {
    Welcome(Box<Welcome>),
    Refused(String),
    /// An invitation was shown to a node that cannot redeem it. Another one can.
    NoIssuer,
    /// The proof that one asks for who was invited. What it says next, it says to an issuer.
    Judge(Box<Judge>),
    /// From here on it is the issuer that one talks to who asked to be led there.
    Through,
    /// As many as may be are led already.
    Busy,
}

/// Who shows this is an issuer of the mesh: by the membership bound to the key of the connection.
#[derive(Deserialize, Serialize)]
pub(crate) struct Judge {
    pub(crate) membership: ByteBuf,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lineage: Option<ByteBuf>,
}

#[derive(Deserialize, Serialize)]
pub(crate) struct Welcome {
    pub(crate) version: u16,
    pub(crate) membership: ByteBuf,
    pub(crate) about: About,
    /// A membership for the caller: its first, or its next.
    pub(crate) granted: Option<ByteBuf>,
    pub(crate) revocations: [u8; 32],
    /// What we know, where the caller's digest was another.
    pub(crate) revoked: Option<ByteBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lineage: Option<ByteBuf>,
}

#[derive(Deserialize, Serialize)]
pub(crate) struct Thanks {
    pub(crate) revoked: Option<ByteBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_later_version_says_besides_is_passed_over() {
        #[derive(Serialize)]
        struct Later {
            calls: Option<u16>,
            more: Vec<String>,
            run: u64,
            charter: Option<u64>,
        }
        let later = Later {
            calls: Some(7118),
            more: vec!["of what is not known yet".into()],
            run: 3,
            charter: Some(5),
        };
        let read: About = HELLO.decode(&HELLO.encode(&later).unwrap()[4..]).unwrap();
        assert_eq!((read.calls, read.run, read.charter), (Some(7118), 3, Some(5)));
    }
}
