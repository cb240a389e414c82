//! The page's files, packed into the program at build time.

use std::io::Read;

use bytes::Bytes;
use flate2::read::GzDecoder;
use hyper::header::{ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, HeaderMap, HeaderValue, VARY};
use hyper::{Response, StatusCode};

use sqm_http::{ResponseBody, full};

/// The path and the gzip-compressed content of each file.
const FILES: &[(&str, &[u8])] = &include!(concat!(env!("OUT_DIR"), "/page.rs"));

const NOT_BUILT: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>sqm</title><p>This program was built \
                         without its page: run <code>make web</code> and build it again. The API is at \
                         <a href=\"/api/v1/openapi.yaml\">/api/v1</a>.";

/// The file of a path, if it was packed. No path leads to a file outside of the program. `page` is the file of this server's page.
pub(super) fn find(page: &str, path: &str, headers: &HeaderMap) -> Option<Response<ResponseBody>> {
    let path = if path == "/" { page } else { path };
    // The other server's page would find none of its answers here.
    if path.ends_with(".html") && path != page {
        return None;
    }
    let Some((_, packed)) = FILES.iter().find(|(name, _)| *name == path) else {
        return (path == page).then(|| full(StatusCode::OK, kind(path), NOT_BUILT));
    };
    let takes_gzip = headers
        .get(ACCEPT_ENCODING)
        .and_then(|takes| takes.to_str().ok())
        .is_some_and(|takes| takes.split(',').any(|one| one.trim().starts_with("gzip")));
    let mut answer = if takes_gzip {
        let mut answer = full(StatusCode::OK, kind(path), Bytes::from_static(packed));
        answer
            .headers_mut()
            .insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        answer
    } else {
        let mut plain = Vec::new();
        // Our own build has compressed it, so this cannot fail.
        let _ = GzDecoder::new(*packed).read_to_end(&mut plain);
        full(StatusCode::OK, kind(path), plain)
    };
    // The names of files in assets/ change with their content, so they can be cached for ever.
    let keeping = if path.starts_with("/assets/") {
        "public, max-age=31536000, immutable"
    } else {
        "no-cache"
    };
    let headers = answer.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(keeping));
    headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    Some(answer)
}

fn kind(path: &str) -> &'static str {
    match path.rsplit('.').next().unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "json" | "webmanifest" => "application/json",
        "woff2" => "font/woff2",
        _ => "application/octet-stream",
    }
}
