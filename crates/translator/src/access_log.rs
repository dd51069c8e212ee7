//! Access logs of a fleet that asks for nothing special: one JSON object per request on standard output.

use ir::AccessLog;

/// Fields with their commands, in order of their names.
const FIELDS: &[(&str, &str)] = &[
    (":authority", "%REQ(:AUTHORITY)%"),
    ("bytes_received", "%BYTES_RECEIVED%"),
    ("bytes_sent", "%BYTES_SENT%"),
    ("connection_termination_details", "%CONNECTION_TERMINATION_DETAILS%"),
    ("downstream_local_address", "%DOWNSTREAM_LOCAL_ADDRESS%"),
    ("downstream_remote_address", "%DOWNSTREAM_REMOTE_ADDRESS%"),
    ("duration", "%DURATION%"),
    ("method", "%REQ(:METHOD)%"),
    ("protocol", "%PROTOCOL%"),
    ("requested_server_name", "%REQUESTED_SERVER_NAME%"),
    ("response_code", "%RESPONSE_CODE%"),
    ("response_code_details", "%RESPONSE_CODE_DETAILS%"),
    ("response_flags", "%RESPONSE_FLAGS%"),
    ("route_name", "%ROUTE_NAME%"),
    ("start_time", "%START_TIME%"),
    ("upstream_cluster", "%UPSTREAM_CLUSTER%"),
    ("upstream_host", "%UPSTREAM_HOST%"),
    ("upstream_local_address", "%UPSTREAM_LOCAL_ADDRESS%"),
    ("upstream_transport_failure_reason", "%UPSTREAM_TRANSPORT_FAILURE_REASON%"),
    ("user-agent", "%REQ(USER-AGENT)%"),
    ("x-envoy-origin-path", "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%"),
    ("x-envoy-upstream-service-time", "%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)%"),
    ("x-forwarded-for", "%REQ(X-FORWARDED-FOR)%"),
    ("x-request-id", "%REQ(X-REQUEST-ID)%"),
];

fn log(only_no_route: bool) -> Vec<AccessLog> {
    let fields = FIELDS.iter().map(|(n, c)| ((*n).into(), (*c).into())).collect();
    vec![AccessLog::FileJson { path: "/dev/stdout".into(), fields, only_no_route }]
}

/// Of a listener: connections that no filter chain took.
pub(crate) fn of_listener() -> Vec<AccessLog> {
    log(true)
}

/// Of a connection manager or proxy: everything.
pub(crate) fn of_route() -> Vec<AccessLog> {
    log(false)
}
