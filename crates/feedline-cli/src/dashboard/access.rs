//! Which requests the dashboard answers.
//!
//! On loopback every process of this machine may ask, unless a token was given, but only under a name of this machine: otherwise
//! a
//! foreign page whose name was made to point here could read along. On any other address a request needs the token: first in the
//! URL, then in a cookie.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::Context;
use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, COOKIE, HOST};
use feedline_core::metrics::is_own_host;
use subtle::ConstantTimeEq;

use crate::output::Failed;

/// Shorter tokens are refused.
const SHORTEST: usize = 8;

/// Decides which requests are answered.
#[derive(Debug)]
pub(super) struct AccessControl {
    address: SocketAddr,
    token: Option<String>,
}

/// What is decided about a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// The request is answered.
    Allow,
    /// The request is answered, and the browser keeps this cookie.
    AllowAndSetCookie(String),
    /// The request was made to a name that isn't this machine's.
    WrongHost,
    /// There is no token, or not the right one.
    WrongToken,
}

/// The token that was given, if it can stand in a URL and in a cookie.
pub(super) fn choose_token(given: Option<&str>) -> Result<Option<String>, Failed> {
    let Some(token) = given.filter(|token| !token.is_empty()) else { return Ok(None) };
    let is_plain = token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte));
    if token.len() < SHORTEST || !is_plain {
        return Err(Failed(format!(
            "this token cannot be used: it must have {SHORTEST} or more letters, digits or -._~\n  \
             make one with: openssl rand -hex 16; or leave it out, and one is made up"
        )));
    }
    Ok(Some(token.to_owned()))
}

fn random_token() -> anyhow::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .context("cannot make up a token: the kernel gives no random bytes\n  give one with --token")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl AccessControl {
    pub fn new(address: SocketAddr, token: Option<String>) -> anyhow::Result<Self> {
        let token = match token {
            None if !address.ip().is_loopback() => Some(random_token()?),
            token => token,
        };
        Ok(Self { address, token })
    }

    /// What to type into a browser.
    pub fn url(&self) -> String {
        // "All addresses" cannot be opened in a browser; this machine's own address can.
        let ip = match self.address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        self.url_at(&SocketAddr::new(ip, self.address.port()).to_string())
    }

    fn url_at(&self, place: &str) -> String {
        let query = self.token.as_ref().map(|token| format!("?token={token}")).unwrap_or_default();
        format!("http://{place}/{query}")
    }

    /// What the user should know beside the URL.
    pub fn hint(&self) -> String {
        let mut hint = String::new();
        if !self.address.ip().is_loopback() {
            if self.address.ip().is_unspecified() {
                let place = format!("THIS-MACHINE:{}", self.address.port());
                hint += &format!("from another machine: {}\n", self.url_at(&place));
            }
            hint +=
                "anyone with the token sees the names, commands and numbers of your feeds; it travels unencrypted\n";
        }
        hint + "Ctrl-C ends the dashboard; the feeds don't notice"
    }

    /// Decides by a request's headers and query.
    pub fn decide(&self, headers: &HeaderMap, query: Option<&str>) -> Decision {
        if self.address.ip().is_loopback() && !is_own_host(text(headers, HOST.as_str())) {
            return Decision::WrongHost;
        }
        let Some(token) = &self.token else { return Decision::Allow };
        let cookie = self.cookie_name();
        let cookies = text(headers, COOKIE.as_str()).split(';').filter_map(|pair| pair.trim().split_once('='));
        let mut kept = cookies.filter(|(name, _)| *name == cookie).map(|(_, value)| value);
        let bearer = text(headers, AUTHORIZATION.as_str()).strip_prefix("Bearer ");
        if bearer.is_some_and(|given| is_same(given, token)) || kept.any(|given| is_same(given, token)) {
            return Decision::Allow;
        }
        let mut pairs = query.unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
        if pairs.any(|(name, given)| name == "token" && is_same(given, token)) {
            return Decision::AllowAndSetCookie(format!("{cookie}={token}; Path=/; HttpOnly; SameSite=Strict"));
        }
        Decision::WrongToken
    }

    /// Cookies are not separated by port: two dashboards on one machine need two names.
    fn cookie_name(&self) -> String {
        format!("feedline_{}", self.address.port())
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Compares in a time that doesn't depend on how much of the token was right.
fn is_same(given: &str, token: &str) -> bool {
    given.as_bytes().ct_eq(token.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap())).collect()
    }

    #[test]
    fn loopback_is_entered_by_its_own_names_only() {
        let access = AccessControl::new("127.0.0.1:8787".parse().unwrap(), None).unwrap();
        for host in ["localhost:8787", "127.0.0.1:8787", "[::1]:9000", "LOCALHOST", "127.0.0.1", "[::1]"] {
            assert_eq!(access.decide(&headers(&[(HOST, host)]), None), Decision::Allow, "{host}");
        }
        for host in
            ["evil.example", "evil.example:8787", "localhost.evil.example", "10.0.0.1:8787", "", "127.0.0.1.nip.io"]
        {
            assert_eq!(access.decide(&headers(&[(HOST, host)]), None), Decision::WrongHost, "{host}");
        }
        assert_eq!(access.decide(&HeaderMap::new(), None), Decision::WrongHost);
    }

    #[test]
    fn elsewhere_a_token_is_needed_once() {
        let access = AccessControl::new("10.0.0.1:80".parse().unwrap(), Some("a-good-token".into())).unwrap();
        assert_eq!(access.url(), "http://10.0.0.1:80/?token=a-good-token");
        let ask = |name: HeaderName, value| access.decide(&headers(&[(HOST, "gpu7"), (name, value)]), None);
        assert_eq!(access.decide(&headers(&[(HOST, "gpu7")]), None), Decision::WrongToken);
        assert_eq!(ask(AUTHORIZATION, "Bearer a-good-token"), Decision::Allow);
        assert_eq!(ask(AUTHORIZATION, "Bearer a-good-tokem"), Decision::WrongToken);
        assert_eq!(ask(COOKIE, "other=1; feedline_80=a-good-token"), Decision::Allow);
        assert_eq!(ask(COOKIE, "feedline_81=a-good-token"), Decision::WrongToken);
        for query in ["token=", "token=a-good-toke", "token=a-good-tokens", "tokens=a-good-token", "a-good-token"] {
            assert_eq!(access.decide(&HeaderMap::new(), Some(query)), Decision::WrongToken, "{query}");
        }
        let Decision::AllowAndSetCookie(cookie) = access.decide(&HeaderMap::new(), Some("a=b&token=a-good-token"))
        else {
            panic!()
        };
        assert_eq!(cookie, "feedline_80=a-good-token; Path=/; HttpOnly; SameSite=Strict");
    }

    #[test]
    fn a_token_is_made_up_for_all_but_loopback() {
        let open = |address: &str| AccessControl::new(address.parse().unwrap(), None).unwrap();
        assert_eq!(open("127.0.0.1:1").token, None);
        assert_eq!(open("[::1]:1").token, None);
        let (left, right) = (open("0.0.0.0:1").token.unwrap(), open("[::]:1").token.unwrap());
        assert_eq!((left.len(), right.len()), (32, 32));
        assert_ne!(left, right);
    }

    #[test]
    fn tokens_that_would_need_quoting_are_refused() {
        for bad in ["short", "with blank here", "semi;colon;x", "percent%20sign", "ünïcödé-token"] {
            let error = choose_token(Some(bad)).unwrap_err().to_string();
            assert!(error.contains("\n  make one with"), "{error}");
            assert!(!error.contains(bad), "{error}");
        }
        assert_eq!(choose_token(Some("")).unwrap(), None);
        assert_eq!(choose_token(Some("abcd-1234")).unwrap().as_deref(), Some("abcd-1234"));
    }
}
