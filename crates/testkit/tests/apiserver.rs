//! The test API server itself.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, api::PostParams};
use testkit::{
    apiserver::{ApiServer, Options, kube_bin},
    proxy::{Answers, HttpProxy, Network, TcpProxy},
};

#[tokio::test]
async fn writes_are_in_the_audit_log_with_their_user_and_proxies_stand_between() {
    let Some(bin) = kube_bin() else { return };
    let server =
        ApiServer::start(Options { bin, users: vec!["alice".into()], logs: None, bodies: false }).await.unwrap();
    let object: ConfigMap = serde_json::from_value(serde_json::json!({"metadata": {"name": "a"}})).unwrap();
    let admin: Api<ConfigMap> = Api::default_namespaced(server.admin().unwrap());
    admin.create(&PostParams::default(), &object).await.unwrap();

    let http = HttpProxy::start(server.port(), server.ca_pem()).await.unwrap();
    let tcp = TcpProxy::start(http.port()).await.unwrap();
    let url = format!("http://127.0.0.1:{}", tcp.port());
    let through: Api<ConfigMap> = Api::default_namespaced(server.client("admin", &url).unwrap());
    through.get("a").await.unwrap();
    let alice: Api<ConfigMap> = Api::default_namespaced(server.client("alice", &url).unwrap());
    let refused = alice.create(&PostParams::default(), &object).await.unwrap_err();
    assert!(matches!(refused, kube::Error::Api(s) if s.code == 403), "RBAC is on");
    http.set(Answers::Status { code: 500, every: 1 });
    assert!(through.get("a").await.is_err());
    http.set(Answers::Pass);
    tcp.set(Network::Cut);
    assert!(through.get("a").await.is_err());
    tcp.set(Network::Open);
    through.get("a").await.unwrap();

    let audit = server.audit().unwrap();
    let writes: Vec<_> = audit
        .iter()
        .filter(|e| e.object_ref.as_ref().is_some_and(|o| o.resource == "configmaps" && o.name == "a"))
        .map(|e| (e.user.username.as_str(), e.response_status.as_ref().map_or(0, |s| s.code)))
        .collect();
    assert_eq!(writes[0], ("admin", 201));
}
