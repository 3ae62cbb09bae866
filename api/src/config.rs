//! The `[api]` section of the configuration.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::error::ServeError;

/// Whose sampling values count while the model thinks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SamplingRule {
    /// What the client sends is used; what it leaves out takes the model's value.
    #[default]
    Client,
    /// While thinking the model's values are used, as on DeepSeek's hosted API.
    Model,
}

/// On or off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Switch {
    /// Yes.
    On,
    /// No.
    Off,
}

impl Switch {
    pub(crate) fn is_on(self) -> bool {
        self == Switch::On
    }
}

/// What `[api]` may say.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ApiConfig {
    /// Address and port to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// A file of API keys, one a line; a request must carry one of them. Without it every request is taken.
    pub keys_file: Option<PathBuf>,
    /// Allow an address that other machines can reach although there are no API keys: whoever reaches it may use it.
    pub allow_remote: bool,
    /// Names besides the loopback ones that the `Host` header may carry, for reverse proxies. Without port.
    pub allowed_hosts: Vec<String>,
    /// Web pages that may use the server from a browser, such as `https://chat.example`; `*` is all of them.
    pub cors_origins: Vec<String>,
    /// The longest time a request may wait for a place, in seconds.
    pub max_queue_wait: u64,
    /// Further names of the model.
    pub model_aliases: Vec<String>,
    /// Refuse other model names than the served one and its aliases. Off: any name is accepted and answered with.
    pub strict_model_names: bool,
    /// The largest request body, in bytes.
    pub max_body: usize,
    /// The longest time a request body may take to arrive, in seconds.
    pub body_timeout: u64,
    /// Silence on a stream, in seconds, after which a comment is sent to keep it alive.
    pub keep_alive: u64,
    /// How long an idle connection is kept open, in seconds.
    pub idle_timeout: u64,
    /// The most connections at a time.
    pub max_connections: usize,
    /// A client that shuts its writing side has gone away; the socket shows the two alike.
    pub cancel_on_half_close: bool,
    /// Whose sampling values count while the model thinks.
    pub sampling: SamplingRule,
    /// Send the reasoning of a response as its summary, too, to clients that ask for summaries. Doubles that traffic.
    pub reasoning_summaries: bool,
    /// End the thinking after as many tokens as a client's `thinking.budget_tokens` says. Off: the model decides, as in the
    /// hosted service.
    pub honour_budget: bool,
    /// Whether the model thinks where a Messages request does not say.
    pub anthropic_thinking_default: Switch,
    /// Threads that serve connections.
    pub threads: usize,
}

impl Default for ApiConfig {
    fn default() -> Self {
        ApiConfig {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            keys_file: None,
            allow_remote: false,
            allowed_hosts: Vec::new(),
            cors_origins: Vec::new(),
            max_queue_wait: 600,
            model_aliases: Vec::new(),
            strict_model_names: false,
            max_body: 64 << 20,
            body_timeout: 60,
            keep_alive: 5,
            idle_timeout: 75,
            max_connections: 256,
            cancel_on_half_close: true,
            sampling: SamplingRule::Client,
            reasoning_summaries: false,
            honour_budget: false,
            anthropic_thinking_default: Switch::On,
            threads: 2,
        }
    }
}

impl ApiConfig {
    /// Checks what the types cannot say.
    ///
    /// # Errors
    /// [`ServeError::Remote`] for an address that is not a loopback one, unless there are keys or `allow_remote` is set;
    /// [`ServeError::Zero`] for a limit of 0.
    pub fn check(&self) -> Result<(), ServeError> {
        if !self.is_loopback() && self.keys_file.is_none() && !self.allow_remote {
            return Err(ServeError::Remote { listen: self.listen });
        }
        let limits = [
            ("max_body", self.max_body == 0),
            ("max_queue_wait", self.max_queue_wait == 0),
            ("body_timeout", self.body_timeout == 0),
            ("keep_alive", self.keep_alive == 0),
            ("idle_timeout", self.idle_timeout == 0),
            ("max_connections", self.max_connections == 0),
            ("threads", self.threads == 0),
        ];
        match limits.into_iter().find(|(_, zero)| *zero) {
            Some((key, _)) => Err(ServeError::Zero { key }),
            None => Ok(()),
        }
    }

    /// Whether only this machine can reach the address.
    pub(crate) fn is_loopback(&self) -> bool {
        self.listen.ip().to_canonical().is_loopback()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_others_reach_needs_a_word() {
        for listen in ["0.0.0.0:8080", "192.168.1.2:8080", "[::]:8080"] {
            let mut config = ApiConfig { listen: listen.parse().unwrap(), ..ApiConfig::default() };
            let message = config.check().unwrap_err().to_string();
            assert!(
                message.contains(listen) && message.contains("allow_remote") && message.contains("keys_file"),
                "{message}"
            );
            config.allow_remote = true;
            assert!(config.check().is_ok());
            let config = ApiConfig { keys_file: Some("keys".into()), allow_remote: false, ..config };
            assert!(config.check().is_ok());
        }
        for listen in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            let config = ApiConfig { listen: listen.parse().unwrap(), ..ApiConfig::default() };
            assert!(config.check().is_ok(), "{listen}");
        }
    }

    #[test]
    fn unknown_keys_and_zero_limits_are_refused() {
        let error = serde_json::from_str::<ApiConfig>(r#"{"lissten": "127.0.0.1:1"}"#).unwrap_err().to_string();
        assert!(error.contains("lissten"), "{error}");
        let config: ApiConfig = serde_json::from_str(r#"{"keep_alive": 0, "sampling": "model"}"#).unwrap();
        assert_eq!(config.sampling, SamplingRule::Model);
        assert!(config.check().unwrap_err().to_string().contains("keep_alive"));
    }
}
