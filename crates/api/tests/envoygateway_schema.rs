//! The schema of the kinds of `gateway.envoyproxy.io` is that of the published definitions.

#[path = "../../gateway-api/tests/common/mod.rs"]
mod common;

use api::envoygateway;
use common::Explained;

#[test]
fn definitions_are_the_published_ones() {
    common::compare(
        "envoy-gateway.yaml",
        &envoygateway::definitions(),
        &[],
        &[
            Explained {
                part: "minimum: only ours: 0.0",
                why: "an unsigned field refuses negative numbers, which no release could decode",
            },
            Explained { part: "podCertificate.userAnnotations", why: "newer than the Kubernetes types in use (v1.34)" },
        ],
    );
}
