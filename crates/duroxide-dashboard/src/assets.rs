//! The pages, embedded as they were built. Only these names exist; no path of a request ever reaches a file system.

use axum::Router;
use axum::extract::OriginalUri;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;

#[derive(Clone, Copy)]
struct Asset {
    name: &'static str,
    content_type: &'static str,
    bytes: &'static [u8],
    /// The same, compressed by gzip when the pages were built.
    compressed: Option<&'static [u8]>,
}

const INDEX: Asset = Asset {
    name: "/",
    content_type: "text/html; charset=utf-8",
    bytes: include_bytes!("../assets/index.html"),
    compressed: None,
};

const ASSETS: [Asset; 3] = [
    Asset {
        name: "/app.js",
        content_type: "text/javascript; charset=utf-8",
        bytes: include_bytes!("../assets/app.js"),
        compressed: Some(include_bytes!("../assets/app.js.gz")),
    },
    Asset {
        name: "/app.css",
        content_type: "text/css; charset=utf-8",
        bytes: include_bytes!("../assets/app.css"),
        compressed: Some(include_bytes!("../assets/app.css.gz")),
    },
    Asset {
        name: "/icon.svg",
        content_type: "image/svg+xml",
        bytes: include_bytes!("../assets/icon.svg"),
        compressed: None,
    },
];

pub(crate) fn router() -> Router {
    let mut router = Router::new().route("/", get(index)).fallback(missing);
    for asset in ASSETS {
        let tag = tag_of(asset.bytes);
        let serve = move |headers: HeaderMap| {
            let tag = tag.clone();
            async move { send(&asset, &tag, &headers) }
        };
        router = router.route(asset.name, get(serve));
    }
    router
}

/// The pages name everything relative to themselves, so their address must end with a slash.
async fn index(OriginalUri(original): OriginalUri, headers: HeaderMap) -> Response {
    match original.path().ends_with('/') {
        true => send(&INDEX, &tag_of(INDEX.bytes), &headers),
        false => Redirect::temporary(&with_slash(&original)).into_response(),
    }
}

/// Only the last part of the path, so that it stays relative: a proxy may have taken away what stood before.
fn with_slash(uri: &Uri) -> String {
    let last = uri.path().rsplit('/').next().unwrap_or_default();
    format!("./{last}/")
}

async fn missing() -> Response {
    (StatusCode::NOT_FOUND, "There is nothing here.\n").into_response()
}

fn send(asset: &Asset, tag: &HeaderValue, headers: &HeaderMap) -> Response {
    let known = headers.get(header::IF_NONE_MATCH) == Some(tag);
    let common = [
        (header::CONTENT_TYPE, HeaderValue::from_static(asset.content_type)),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (header::VARY, HeaderValue::from_static("accept-encoding")),
        (header::ETAG, tag.clone()),
    ];
    match asset.compressed.filter(|_| takes_gzip(headers)) {
        _ if known => (StatusCode::NOT_MODIFIED, common).into_response(),
        Some(compressed) => (common, [(header::CONTENT_ENCODING, "gzip")], compressed).into_response(),
        None => (common, asset.bytes).into_response(),
    }
}

/// Tells whether a browser names gzip among what it can read, and does not refuse it.
fn takes_gzip(headers: &HeaderMap) -> bool {
    let named =
        headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    named.split(',').any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        is_gzip && weight.is_none_or(|weight| weight.parse::<f32>().is_ok_and(|weight| weight > 0.0))
    })
}

/// A mark of the content (FNV-1a), by which a browser knows that it has the newest: a weak one, as it says nothing of the coding.
fn tag_of(bytes: &[u8]) -> HeaderValue {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    HeaderValue::from_str(&format!("W/\"{hash:016x}\"")).unwrap_or_else(|_| HeaderValue::from_static("\"\""))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use tower::ServiceExt;

    use super::*;

    /// The coding and the first bytes of the script for a browser that accepts this.
    async fn script(accepted: &str) -> (Option<String>, Vec<u8>) {
        let request =
            Request::get("/app.js").header("accept-encoding", accepted).body(Body::empty()).unwrap();
        let answer = router().oneshot(request).await.unwrap();
        assert_eq!(answer.headers()["vary"], "accept-encoding");
        let coding =
            answer.headers().get("content-encoding").map(|coding| coding.to_str().unwrap().to_string());
        let bytes = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        (coding, bytes[..2].to_vec())
    }

    #[tokio::test]
    async fn pages_are_sent_compressed_to_who_can_read_that_and_as_they_are_to_others() {
        for accepted in ["gzip", "gzip, deflate, br", "br;q=1.0, GZIP; q=0.5"] {
            assert_eq!(script(accepted).await, (Some("gzip".to_string()), vec![0x1f, 0x8b]), "{accepted}");
        }
        for accepted in ["", "identity", "br", "gzip;q=0", "gzip;q=0.0, br", "xgzip"] {
            let (coding, first) = script(accepted).await;
            assert!(coding.is_none() && first != [0x1f, 0x8b], "{accepted}");
        }
    }
}
