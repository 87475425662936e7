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
}

const INDEX: Asset = Asset {
    name: "/",
    content_type: "text/html; charset=utf-8",
    bytes: include_bytes!("../assets/index.html"),
};

const ASSETS: [Asset; 3] = [
    Asset {
        name: "/app.js",
        content_type: "text/javascript; charset=utf-8",
        bytes: include_bytes!("../assets/app.js"),
    },
    Asset {
        name: "/app.css",
        content_type: "text/css; charset=utf-8",
        bytes: include_bytes!("../assets/app.css"),
    },
    Asset { name: "/icon.svg", content_type: "image/svg+xml", bytes: include_bytes!("../assets/icon.svg") },
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
        (header::ETAG, tag.clone()),
    ];
    match known {
        true => (StatusCode::NOT_MODIFIED, common).into_response(),
        false => (common, asset.bytes).into_response(),
    }
}

/// A mark of the content (FNV-1a), by which a browser knows that it has the newest.
fn tag_of(bytes: &[u8]) -> HeaderValue {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    HeaderValue::from_str(&format!("\"{hash:016x}\"")).unwrap_or_else(|_| HeaderValue::from_static("\"\""))
}
