//! The schema of the Gateway API kinds is that of the published definitions.

mod common;

#[test]
fn definitions_are_those_of_the_experimental_channel() {
    common::compare(
        "gateway-api-experimental.yaml",
        &gateway_api::definitions(),
        &["XBackend", "XBackendTrafficPolicy", "XMesh"],
        &[],
    );
}
