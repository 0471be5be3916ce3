//! The `http` sink on the real binary, against real endpoints on loopback.

mod answers;
mod ends;
mod fan_out;
mod secrets;
pub mod webhooks;

use crate::world::program::Place;
use serde_json::{Value, json};

/// A place with an inbox whose items go to these sinks.
pub fn place(sinks: &[(&str, Value)]) -> Place {
    let place = Place::new("true");
    let mut config = place.config("true");
    config["retry_seconds"] = 0.02.into();
    set_sinks(&mut config, sinks);
    place.configure(&config);
    place
}

/// Gives the first source of `config` these sinks, and no others.
pub fn set_sinks(config: &mut Value, sinks: &[(&str, Value)]) {
    let names: Vec<&str> = sinks.iter().map(|(name, _)| *name).collect();
    config["sources"][0]["sinks"] = json!(names);
    config["sinks"] = json!({});
    for (name, sink) in sinks {
        config["sinks"][name] = sink.clone();
    }
}

/// An `http` sink with more keys.
pub fn http(url: &str, more: &Value) -> Value {
    let mut sink = json!({ "type": "http", "url": url });
    for (key, value) in more.as_object().expect("keys") {
        sink[key] = value.clone();
    }
    sink
}

/// Changes the config that is there.
pub fn edit(place: &Place, change: impl FnOnce(&mut Value)) {
    let text = std::fs::read_to_string(place.path("idempoll.json")).expect("a config");
    let mut config = serde_json::from_str(&text).expect("JSON");
    change(&mut config);
    place.configure(&config);
}

/// The reasons of the event log's entries of a type, in order.
pub fn reasons(place: &Place, kind: &str) -> Vec<String> {
    let entries = place.entries(kind);
    let reasons = entries.iter().map(|e| e["reason"].as_str());
    reasons.map(|r| r.unwrap_or_default().to_string()).collect()
}
