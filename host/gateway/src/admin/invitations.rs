//! Invitations into the mesh: to see which there are takes the right `admin`, to make one or to take one back `manage`.

use super::may_manage::MayManage;
use super::{Admin, to_the_end};
use crate::openapi::PlainError;
use crate::refusal::Refusal;
use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::response::Json;
use axum::routing::{delete, get};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, header};
use karman_mesh::InvitationStatus;
use karman_mesh::membership::{Right, UnixTime};
use karman_node::{InPath, InviteOrder};
use karman_types::{ByteSize, ErrorKind, TaskError, Tier};
use serde::Serialize;
use utoipa::ToSchema;

/// What is asked for may have so many bytes: an invitation itself has at most 4,096 characters.
const MOST_BYTES: ByteSize = ByteSize::kib(16);

/// What somebody is invited to.
#[derive(ToSchema)]
#[allow(
    dead_code,
    reason = "only its schema is used: the one that is read is `InviteOrder`"
)]
pub(crate) struct InviteRequest {
    /// `edge`, `fog`, `cloud` or `space`.
    tier: String,
    /// How long the invitation can be used, as `7 d`, which it is by default.
    expires: Option<String>,
    /// How long the membership lasts before it must be renewed, as `30 d`, which it is by default.
    lasts: Option<String>,
    /// What the node may do besides calling tasks, as `deploy:*`.
    rights: Option<Vec<String>>,
    /// The key of the node that it is for, which then joins without this one in reach.
    r#for: Option<String>,
    /// Where it finds this node, as `/ip4/192.0.2.7/udp/7117/quic-v1`. Default: where this one listens.
    addresses: Option<Vec<String>>,
}

/// An invitation: a secret until it is used.
#[derive(Serialize)]
struct Invited {
    /// What `karman node up --join` takes, once.
    invitation: String,
    /// What logs and lists call it.
    id: String,
    tier: Tier,
    /// The last second it can be used, since 1970.
    expires: UnixTime,
}

/// The routes. How long a body may be is judged here, so that it is told as any other error.
pub(super) fn router() -> Router<Admin> {
    Router::new()
        .route("/admin/invitations", get(invitations).post(invite))
        .route("/admin/invitations/{id}", delete(withdraw))
        .layer(DefaultBodyLimit::disable())
}

/// The invitations that were made on this machine, the last first, and what has become of each; not the words that let nodes in.
#[utoipa::path(get, path = "/admin/invitations", tag = "administration", responses(
    (status = 200, description = "`id`, `tier`, `made`, `expires`, `state` (`open`, `used`, `withdrawn`, `expired`), and `used_by`")))]
async fn invitations(State(admin): State<Admin>) -> Result<Json<Vec<InvitationStatus>>, Refusal> {
    Ok(Json(admin.node.invitations().await?))
}

/// Takes back an invitation that no node has used: none joins by it any more. Takes a token with the right `manage`.
#[utoipa::path(delete, path = "/admin/invitations/{id}", tag = "administration", operation_id = "withdraw_invitation",
    params(("id" = String, Path, description = "The invitation's id, or its beginning")), responses(
    (status = 200, description = "The invitation as it is now"),
    (status = 400, body = PlainError), (status = 404, body = PlainError)))]
async fn withdraw(
    State(admin): State<Admin>,
    _: MayManage,
    InPath(id): InPath<String>,
) -> Result<Json<InvitationStatus>, Refusal> {
    let withdrawn = to_the_end(async move { admin.node.withdraw_invitation(&id).await });
    Ok(Json(withdrawn.await.map_err(missing)?))
}

fn missing(error: TaskError) -> Refusal {
    match (error.kind, error.field.as_deref()) {
        (ErrorKind::Unavailable, Some("invitation")) => Refusal::unknown(error),
        _ => error.into(),
    }
}

/// Invites one node into the mesh. The invitation is told this once: it is kept nowhere. Takes a token with the right `manage`.
#[utoipa::path(post, path = "/admin/invitations", tag = "administration", request_body = InviteRequest, responses(
    (status = 200, description = "The invitation, what logs call it, and until when it can be used"),
    (status = 400, body = PlainError)))]
async fn invite(
    State(admin): State<Admin>,
    _: MayManage,
    order: Bytes,
) -> Result<([(HeaderName, HeaderValue); 1], Json<Invited>), Refusal> {
    let order = read(&order)?;
    let invitation = admin.node.invite(&order).await?;
    let invited = Invited {
        invitation: invitation.to_string(),
        id: invitation.id().to_string(),
        tier: order.tier,
        expires: invitation.expires(),
    };
    // The answer is a secret that anybody could use, so no cache on the way keeps it.
    let unkept = [(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))];
    Ok((unkept, Json(invited)))
}

/// Reads what is asked for. A node that may admit others, or put them out, could go on when the token is taken back: that right is given
/// where the root key is.
fn read(order: &[u8]) -> Result<InviteOrder, TaskError> {
    if order.len() as u64 > MOST_BYTES.0 {
        let error = TaskError::limit(format!("what is asked for has more than {MOST_BYTES}"));
        return Err(error.with_field("body"));
    }
    let order: InviteOrder = serde_json::from_slice(order).map_err(|error| {
        let error = TaskError::invalid(format!("the invitation does not read: {error}")).with_field("body");
        error.with_hint("in JSON: {\"tier\": \"edge\", \"expires\": \"7 d\"}")
    })?;
    let is_beyond = |right: &&Right| matches!(right, Right::Issue | Right::Revoke);
    match order.rights.iter().find(is_beyond) {
        Some(right) => Err(
            TaskError::denied(format!("`{right}` is given by nobody from outside"))
                .with_field("rights")
                .with_hint("`karman mesh invite` on the machine with the root key gives it"),
        ),
        None => Ok(order),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_made_an_issuer_from_outside() {
        for right in ["issue", "revoke"] {
            let error =
                read(format!(r#"{{ "tier": "edge", "rights": ["deploy:tiny", "{right}"] }}"#).as_bytes());
            let error = error.unwrap_err();
            assert_eq!(error.field.as_deref(), Some("rights"));
            assert!(error.message.contains(right), "{error}");
        }
        assert!(read(br#"{ "tier": "edge", "rights": ["deploy:*"] }"#).is_ok());
        let unread = read(br#"{ "tier": "moon" }"#).unwrap_err();
        assert_eq!(unread.field.as_deref(), Some("body"));
        let long = read(" ".repeat(20 << 10).as_bytes()).unwrap_err();
        assert_eq!(long.kind, ErrorKind::Limit, "{long}");
    }
}
