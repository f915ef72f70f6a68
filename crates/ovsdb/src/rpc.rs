//! JSON-RPC 1.0 messages, as OVSDB and unixctl use them.

use serde_json::{Map, Value, json};

use crate::value::{DecodeError, Decoded};

/// One message in either direction.
#[derive(Clone, PartialEq, Debug)]
pub enum Message {
    /// A call, answered by a response with the same id.
    Request(Request),
    /// The response to a request.
    Response(Response),
    /// A call without a response.
    Notification(Notification),
}

/// A call with a response; the id is any JSON value but null.
#[derive(Clone, PartialEq, Debug)]
pub struct Request {
    /// The id of the response.
    pub id: Value,
    /// Name of the method to call.
    pub method: String,
    /// Arguments of the method.
    pub params: Vec<Value>,
}

/// The response to a request.
#[derive(Clone, PartialEq, Debug)]
pub struct Response {
    /// The id of its request.
    pub id: Value,
    /// The result, or the error object, which is never null.
    pub outcome: Result<Value, Value>,
}

/// A call without a response.
#[derive(Clone, PartialEq, Debug)]
pub struct Notification {
    /// Name of the method that is called.
    pub method: String,
    /// Arguments of the call.
    pub params: Vec<Value>,
}

impl Message {
    /// Decodes a message; unknown members are ignored.
    pub fn decode(value: Value) -> Decoded<Self> {
        let Value::Object(mut object) = value else {
            return Err(DecodeError::unexpected("a JSON-RPC object", &value));
        };
        let id = object.remove("id").unwrap_or(Value::Null);
        match object.remove("method") {
            Some(Value::String(method)) => {
                let params = params(&mut object).map_err(|error| error.at(&method))?;
                Ok(if id.is_null() {
                    Self::Notification(Notification { method, params })
                } else {
                    Self::Request(Request { id, method, params })
                })
            }
            None | Some(Value::Null) => {
                let outcome = outcome(object).map_err(|error| error.at(format_args!("response {id}")))?;
                Ok(Self::Response(Response { id, outcome }))
            }
            Some(other) => Err(DecodeError::unexpected("a method name", &other)),
        }
    }

    /// Encodes the message as JSON.
    pub fn encode(&self) -> Value {
        match self {
            Self::Request(Request { id, method, params }) => json!({"id": id, "method": method, "params": params}),
            Self::Notification(Notification { method, params }) => {
                json!({"id": null, "method": method, "params": params})
            }
            Self::Response(Response { id, outcome: Ok(result) }) => json!({"id": id, "result": result, "error": null}),
            Self::Response(Response { id, outcome: Err(error) }) => json!({"id": id, "result": null, "error": error}),
        }
    }

    /// Encodes the message as the bytes to send.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.encode().to_string().into_bytes()
    }
}

impl Request {
    /// A request with a number for its id.
    pub fn new(id: u64, method: &str, params: Vec<Value>) -> Self {
        Self { id: id.into(), method: method.to_owned(), params }
    }

    /// The liveness probe of RFC 7047; the peer sends `params` back.
    pub fn echo(id: u64) -> Self {
        Self::new(id, "echo", vec![])
    }

    /// Requests the schema of a database.
    pub fn get_schema(id: u64, database: &str) -> Self {
        Self::new(id, "get_schema", vec![database.into()])
    }

    /// The response to an `echo` of the peer; `None` for any other request.
    pub fn echo_reply(&self) -> Option<Response> {
        (self.method == "echo").then(|| Response { id: self.id.clone(), outcome: Ok(self.params.clone().into()) })
    }

    /// The response to a request with an unknown method.
    pub fn refuse(&self) -> Response {
        let error = json!({"error": "unknown method", "details": self.method});
        Response { id: self.id.clone(), outcome: Err(error) }
    }
}

impl From<Request> for Message {
    fn from(request: Request) -> Self {
        Self::Request(request)
    }
}

impl From<Response> for Message {
    fn from(response: Response) -> Self {
        Self::Response(response)
    }
}

impl From<Notification> for Message {
    fn from(notification: Notification) -> Self {
        Self::Notification(notification)
    }
}

fn params(object: &mut Map<String, Value>) -> Decoded<Vec<Value>> {
    match object.remove("params") {
        Some(Value::Array(params)) => Ok(params),
        other => Err(DecodeError::unexpected("an array of params", &other.unwrap_or_default())),
    }
}

fn outcome(mut object: Map<String, Value>) -> Decoded<Result<Value, Value>> {
    match (object.remove("result"), object.remove("error")) {
        (None | Some(Value::Null), Some(error)) if !error.is_null() => Ok(Err(error)),
        (Some(result), None | Some(Value::Null)) => Ok(Ok(result)),
        _ => Err(DecodeError::unexpected("a result or an error", &Value::Object(object))),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_members_of_a_message_determine_its_kind() {
        let decode = |value| Message::decode(value).unwrap();
        assert_eq!(
            decode(json!({"id": "echo", "method": "echo", "params": [1]})),
            Request { id: "echo".into(), method: "echo".into(), params: vec![json!(1)] }.into()
        );
        assert_eq!(
            decode(json!({"id": null, "method": "update3", "params": []})),
            Notification { method: "update3".into(), params: vec![] }.into()
        );
        assert_eq!(
            decode(json!({"id": 0, "result": null, "error": null})),
            Response { id: json!(0), outcome: Ok(Value::Null) }.into()
        );
        assert_eq!(
            decode(json!({"id": 0, "result": null, "error": "no"})),
            Response { id: json!(0), outcome: Err("no".into()) }.into()
        );
    }

    #[test]
    fn a_message_that_is_neither_call_nor_response_is_rejected() {
        for value in [
            json!([]),
            json!({}),
            json!({"id": 1}),
            json!({"id": 1, "method": 7, "params": []}),
            json!({"id": 1, "method": "m"}),
            json!({"id": 1, "result": 1, "error": 2}),
        ] {
            assert!(Message::decode(value.clone()).is_err(), "{value}");
        }
    }

    #[test]
    fn an_echo_is_answered_with_its_params() {
        let echo = Request::new(3, "echo", vec![json!("x")]);
        assert_eq!(echo.echo_reply(), Some(Response { id: json!(3), outcome: Ok(json!(["x"])) }));
        assert_eq!(Request::new(3, "lock", vec![]).echo_reply(), None);
    }

    proptest! {
        #[test]
        fn encode_then_decode_is_the_same_message(id in any::<u64>(), method in ".*", n in any::<i64>(), kind in 0..4) {
            let message: Message = match kind {
                0 => Request::new(id, &method, vec![n.into()]).into(),
                1 => Notification { method, params: vec![n.into()] }.into(),
                2 => Response { id: id.into(), outcome: Ok(n.into()) }.into(),
                _ => Response { id: id.into(), outcome: Err(method.into()) }.into(),
            };
            prop_assert_eq!(Message::decode(message.encode()).unwrap(), message.clone());
            let bytes: Value = serde_json::from_slice(&message.to_bytes()).unwrap();
            prop_assert_eq!(bytes, message.encode());
        }
    }
}
