//! Status and metrics over HTTP: read only, so it may be open to whoever watches.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use tokio::net::TcpListener;

use super::metrics;
use super::service::Service;

const INDEX: &str = "tarn\n\n/status   how the server is, as JSON\n/metrics  the same for Prometheus\n/healthz  200 while \
                     everything acknowledged becomes durable\n";

/// Answers for ever.
pub async fn serve(listener: TcpListener, service: Arc<Service>) -> std::io::Result<()> {
    let router = Router::new()
        .route("/", get(|| async { INDEX }))
        .route("/status", get(status))
        .route("/metrics", get(metrics))
        .route("/healthz", get(health))
        .with_state(service);
    axum::serve(listener, router).await
}

async fn status(State(service): State<Arc<Service>>) -> Response {
    Json(service.status()).into_response()
}

async fn metrics(State(service): State<Arc<Service>>) -> Response {
    match metrics::render(service.status()) {
        Ok(text) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn health(State(service): State<Arc<Service>>) -> Response {
    let status = service.status();
    let deposed = status.deposed.then(|| "another node has taken the store".to_owned());
    match status.log.poisoned.or(status.read_only).or(deposed) {
        None => "ok\n".into_response(),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response(),
    }
}
