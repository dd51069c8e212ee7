use super::*;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use std::time::Instant;
use tokio_tungstenite::tungstenite::Message;

type Http = Client<HttpConnector, Full<Bytes>>;

fn http1() -> Http {
    Client::builder(TokioExecutor::new()).build_http()
}

async fn ask(client: &Http, request: http::request::Builder, body: &str) -> (http::response::Parts, Answer) {
    let request = request.body(Full::from(body.to_owned())).unwrap();
    let (parts, body) = client.request(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (parts, serde_json::from_slice(&body).unwrap())
}

#[tokio::test]
async fn answers_what_was_asked() {
    let echo = Echo::start("web-1").await.unwrap();
    let request = Request::post(format!("http://{}/a/b?x=1&y=2", echo.addr()))
        .header("host", "www.example.com")
        .header("X-Multi", "one")
        .header("X-Multi", "two");
    let (parts, answer) = ask(&http1(), request, "hello").await;
    assert_eq!(parts.status, 200);
    assert_eq!(answer.backend, "web-1");
    assert_eq!((answer.method.as_str(), answer.path.as_str(), answer.query.as_str()), ("POST", "/a/b", "x=1&y=2"));
    assert_eq!(answer.host, "www.example.com");
    assert_eq!(answer.proto, "HTTP/1.1");
    assert_eq!(answer.headers["x-multi"], ["one", "two"]);
    assert_eq!((answer.body_bytes, answer.body.as_str()), (5, "hello"));
    assert_eq!(answer.tls, None);
    assert_eq!(echo.requests(), 1);
}

#[tokio::test]
async fn speaks_http2_without_tls() {
    let echo = Echo::start("web-1").await.unwrap();
    let client: Http = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let (_, answer) = ask(&client, Request::get(format!("http://{}/", echo.addr())), "").await;
    assert_eq!(answer.proto, "HTTP/2");
    assert_eq!(answer.host, echo.addr().to_string());
}

#[tokio::test]
async fn does_what_the_request_wishes() {
    let echo = Echo::start("web-1").await.unwrap();
    let url = |path: &str| format!("http://{}{path}", echo.addr());
    let client = http1();
    let (parts, _) = ask(&client, Request::get(url("/")).header("x-echo-status", "503"), "").await;
    assert_eq!(parts.status, 503);
    let (parts, _) = ask(&client, Request::get(url("/status/404/more")), "").await;
    assert_eq!(parts.status, 404);
    let (parts, _) = ask(&client, Request::get(url("/")).header("x-echo-set-header", "X-Color: blue"), "").await;
    assert_eq!(parts.headers["x-color"], "blue");
    for request in [Request::get(url("/delay/120")), Request::get(url("/")).header("x-echo-delay-ms", "120")] {
        let start = Instant::now();
        ask(&client, request, "").await;
        assert!(start.elapsed() >= Duration::from_millis(120));
    }
    let abort = Request::get(url("/")).header("x-echo-abort", "1").body(Full::default()).unwrap();
    assert!(client.request(abort).await.is_err());
}

#[tokio::test]
async fn echoes_websocket_messages() {
    let echo = Echo::start("web-1").await.unwrap();
    let (mut socket, response) = tokio_tungstenite::connect_async(format!("ws://{}/chat", echo.addr())).await.unwrap();
    assert_eq!(response.status(), 101);
    for message in [Message::text("hello"), Message::binary(vec![1, 2, 3])] {
        socket.send(message.clone()).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), message);
    }
}

#[tokio::test]
async fn serves_tls_and_tells_about_it() {
    let made = rcgen::generate_simple_self_signed(["web.test".to_owned()]).unwrap();
    let tls = tls_from_pem(&made.cert.pem(), &made.signing_key.serialize_pem()).unwrap();
    let config = Config { tls: Some(tls), ..Config::named("secure") };
    let echo = Echo::start_with(([127, 0, 0, 1], 0).into(), config).await.unwrap();

    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut client = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.alpn_protocols = vec![b"h2".to_vec()];
    let tcp = tokio::net::TcpStream::connect(echo.addr()).await.unwrap();
    let name = "web.test".try_into().unwrap();
    let stream = tokio_rustls::TlsConnector::from(Arc::new(client)).connect(name, tcp).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    let request = Request::get("https://web.test/").body(Full::<Bytes>::default()).unwrap();
    let exchange = async {
        let body = sender.send_request(request).await.unwrap().into_body().collect().await.unwrap().to_bytes();
        serde_json::from_slice::<Answer>(&body).unwrap()
    };
    let answer = tokio::select! {
        answer = exchange => answer,
        end = connection => panic!("connection ended: {end:?}"),
    };
    let tls = answer.tls.unwrap();
    assert_eq!((tls.server_name.as_str(), tls.negotiated_protocol.as_str()), ("web.test", "h2"));
    assert_eq!((tls.version.as_str(), tls.peer_certificates), ("TLSv1_3", 0));
    assert!(tls_from_pem("x", "y").is_err());
}
