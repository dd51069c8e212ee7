//! What a GatewayClass of ours says that it supports.

/// Names of the features of Gateway API's conformance suite that hold in any mode, sorted.
///
/// Not among them: static addresses, as an address that nobody routes is not told from one that somebody does; the detection of
/// misdirected requests, as HTTP/2 is not offered where certificates overlap; the mesh features.
pub const SUPPORTED_FEATURES: &[&str] = &[
    "BackendTLSPolicy",
    "BackendTLSPolicySANValidation",
    "GRPCRoute",
    "GRPCRouteNamedRouteRule",
    "Gateway",
    "GatewayAddressEmpty",
    "GatewayBackendClientCertificate",
    "GatewayFrontendClientCertificateValidation",
    "GatewayFrontendClientCertificateValidationInsecureFallback",
    "GatewayHTTPListenerIsolation",
    "GatewayPort8080",
    "HTTPRoute",
    "HTTPRoute303RedirectStatusCode",
    "HTTPRoute307RedirectStatusCode",
    "HTTPRoute308RedirectStatusCode",
    "HTTPRouteBackendProtocolH2C",
    "HTTPRouteBackendProtocolWebSocket",
    "HTTPRouteBackendRequestHeaderModification",
    "HTTPRouteBackendTimeout",
    "HTTPRouteCORS",
    "HTTPRouteDestinationPortMatching",
    "HTTPRouteHostRewrite",
    "HTTPRouteMethodMatching",
    "HTTPRouteNamedRouteRule",
    "HTTPRouteParentRefPort",
    "HTTPRoutePathRedirect",
    "HTTPRoutePathRewrite",
    "HTTPRoutePortRedirect",
    "HTTPRouteQueryParamMatching",
    "HTTPRouteRequestMirror",
    "HTTPRouteRequestMultipleMirrors",
    "HTTPRouteRequestPercentageMirror",
    "HTTPRouteRequestTimeout",
    "HTTPRouteResponseHeaderModification",
    "HTTPRouteRetry",
    "HTTPRouteRetryBackendTimeout",
    "HTTPRouteRetryConnectionError",
    "HTTPRouteSchemeRedirect",
    "ListenerSet",
    "ReferenceGrant",
    "TCPRoute",
    "TLSRoute",
    "TLSRouteModeMixed",
    "TLSRouteModeTerminate",
    "UDPRoute",
];

/// Those that hold besides where fleets live in the namespaces of their Gateways: the objects of a fleet are looked for there.
pub const BESIDE_GATEWAYS: &[&str] = &["GatewayInfrastructure"];

/// All that hold, sorted; `beside`: fleets live in the namespaces of their Gateways.
pub(crate) fn supported(beside: bool) -> Vec<&'static str> {
    let more = if beside { BESIDE_GATEWAYS } else { &[] };
    let mut all = [SUPPORTED_FEATURES, more].concat();
    all.sort_unstable();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_sorted_and_fit_into_the_field() {
        assert!(SUPPORTED_FEATURES.is_sorted());
        for all in [supported(false), supported(true)] {
            assert!(all.windows(2).all(|w| w[0] < w[1]));
            assert!(all.len() <= 64);
        }
        assert_eq!(supported(true).len(), SUPPORTED_FEATURES.len() + 1);
    }
}
