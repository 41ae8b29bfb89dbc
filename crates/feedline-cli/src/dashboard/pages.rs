//! What each request is answered with: the page and its parts, what is known about the feeds, and how that changes.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{self, HeaderName};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::sse::{Event, Sse};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use feedline_core::metrics;
use futures_util::stream;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::Live;
use super::access::{AccessControl, Decision};

const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const ASSETS: [(&str, &str, &str); 10] = [
    ("/", "text/html; charset=utf-8", include_str!("assets/index.html")),
    ("/style.css", "text/css; charset=utf-8", include_str!("assets/style.css")),
    ("/app.js", JAVASCRIPT, include_str!("assets/app.js")),
    ("/card.js", JAVASCRIPT, include_str!("assets/card.js")),
    ("/chart.js", JAVASCRIPT, include_str!("assets/chart.js")),
    ("/jobs.js", JAVASCRIPT, include_str!("assets/jobs.js")),
    ("/lines.js", JAVASCRIPT, include_str!("assets/lines.js")),
    ("/dom.js", JAVASCRIPT, include_str!("assets/dom.js")),
    ("/words.js", JAVASCRIPT, include_str!("assets/words.js")),
    ("/icon.svg", "image/svg+xml", include_str!("assets/icon.svg")),
];
/// The page loads nothing from elsewhere, sends nothing elsewhere, and cannot be framed by another page.
const HEADERS: [(HeaderName, &str); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (header::CACHE_CONTROL, "no-store"),
];

pub(super) fn router(access: AccessControl, live: Arc<Live>) -> Router {
    let mut router = Router::new();
    for (path, kind, text) in ASSETS {
        router = router.route(path, get(move || async move { ([(header::CONTENT_TYPE, kind)], text) }));
    }
    router
        .route("/api/feeds", get(feeds))
        .route("/api/live", get(updates))
        .route("/metrics", get(numbers))
        .fallback((StatusCode::NOT_FOUND, "there is nothing here; the page is at /\n"))
        .with_state(live)
        .layer(middleware::from_fn_with_state(Arc::new(access), guard))
}

/// Asks whether the request is allowed, and adds the headers that every answer has.
async fn guard(State(access): State<Arc<AccessControl>>, request: Request, next: Next) -> Response {
    let mut response = match access.decide(request.headers(), request.uri().query()) {
        _ if !matches!(*request.method(), Method::GET | Method::HEAD) => {
            let allow = [(header::ALLOW, "GET, HEAD")];
            (StatusCode::METHOD_NOT_ALLOWED, allow, "the dashboard only shows things: GET\n").into_response()
        }
        Decision::Allow => next.run(request).await,
        Decision::AllowAndSetCookie(cookie) => {
            let mut response = next.run(request).await;
            if let Ok(cookie) = HeaderValue::from_str(&cookie) {
                response.headers_mut().insert(header::SET_COOKIE, cookie);
            }
            response
        }
        Decision::WrongHost => (StatusCode::FORBIDDEN, Html(include_str!("assets/wrong-host.html"))).into_response(),
        Decision::WrongToken => {
            (StatusCode::UNAUTHORIZED, Html(include_str!("assets/wrong-token.html"))).into_response()
        }
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// All that is known.
async fn feeds(State(live): State<Arc<Live>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], live.timeline().snapshot())
}

/// For Prometheus.
async fn numbers(State(live): State<Arc<Live>>) -> impl IntoResponse {
    let stats = live.timeline().stats();
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics::text(&stats))
}

/// A snapshot, then each update. A page that can't keep up gets a snapshot again.
async fn updates(State(live): State<Arc<Live>>) -> impl IntoResponse {
    let events = stream::unfold((live, None::<Receiver<Arc<str>>>), |(live, listening)| async move {
        let (event, listening) = match listening {
            None => snapshot(&live),
            Some(mut receiver) => match receiver.recv().await {
                Ok(update) => (Event::default().event("update").data(update), receiver),
                Err(RecvError::Lagged(_)) => snapshot(&live),
                Err(RecvError::Closed) => return None,
            },
        };
        Some((Ok::<_, Infallible>(event), (live, Some(listening))))
    });
    Sse::new(events)
}

fn snapshot(live: &Live) -> (Event, Receiver<Arc<str>>) {
    let timeline = live.timeline();
    (Event::default().event("snapshot").data(timeline.snapshot()), live.updates.subscribe())
}
