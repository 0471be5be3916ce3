//! Answers that people got when things went wrong; for faults, and for the hub itself.

use crate::world::forge::Reply;
use serde_json::json;

const DOCS: &str = "https://docs.github.com/rest";

/// An error as GitHub writes it.
pub fn error(status: u16, message: &str) -> Reply {
    let body = json!({
        "message": message, "documentation_url": DOCS, "status": status.to_string(),
    });
    Reply::json(body).status(status)
}

pub fn not_found() -> Reply {
    error(404, "Not Found")
}

pub fn gone() -> Reply {
    error(410, "This issue was deleted")
}

pub fn bad_credentials() -> Reply {
    error(401, "Bad credentials")
}

/// A redirect to `url`.
pub fn moved(url: &str) -> Reply {
    let body = json!({
        "message": "Moved Permanently", "url": url, "documentation_url": DOCS,
    });
    Reply::json(body).status(301).header("Location", url)
}

/// A parameter that cannot be.
pub fn invalid(field: &str) -> Reply {
    let body = json!({
        "message": "Validation Failed", "documentation_url": DOCS, "status": "422",
        "errors": [{"resource": "Search", "field": field, "code": "invalid"}],
    });
    Reply::json(body).status(422)
}

/// A page of `/issues` from too far behind.
pub fn too_deep_for_pages() -> Reply {
    error(
        422,
        "Pagination with the page parameter is not supported for large datasets, please use cursor based pagination (after/before)",
    )
}

/// A page of another list from too far behind.
pub fn too_deep() -> Reply {
    error(
        422,
        "In order to keep the API fast for everyone, pagination is limited for this resource. Check the rel=last link relation in the Link response header to see how far back you can traverse.",
    )
}

/// The hour's requests are used up.
pub fn used_up(status: u16) -> Reply {
    error(status, "API rate limit exceeded for user ID 583231.")
}

/// A secondary limit; often there is no `Retry-After`.
pub fn secondary_limit(status: u16, retry_after: Option<&str>) -> Reply {
    let reply = error(
        status,
        "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.",
    );
    match retry_after {
        Some(value) => reply.header("Retry-After", value),
        None => reply,
    }
}

/// A token that may not; no limit, whatever its status.
pub fn forbidden(needs: &str) -> Reply {
    error(403, "Resource not accessible by personal access token")
        .header("X-Accepted-GitHub-Permissions", needs)
}

/// The request took the server too long.
pub fn server_error(status: u16) -> Reply {
    Reply::json(json!({"message": "Server Error"})).status(status)
}

/// A page for people: a load balancer's, a hotel's.
pub fn html(status: u16) -> Reply {
    let mut reply = Reply::json("<!DOCTYPE html><html><body>Please sign in.</body></html>");
    reply.status = status;
    reply.header("Content-Type", "text/html; charset=utf-8")
}

/// An object, with 200, where a list belongs.
pub fn object_for_list() -> Reply {
    Reply::json(json!({"message": "No server is currently available to service your request."}))
}
