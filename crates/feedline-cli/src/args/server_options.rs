//! The flags of `feedline serve`, from the table of a server's options (`feedline_core::options`).

use clap::builder::PossibleValue;
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command};
use feedline_core::options::{Declared, TABLE, Value};
use serde::Serialize;
use serde_json::{Map, Number};

/// What was given, by keyword; what was not is the server's default.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct ServerOptions(Map<String, serde_json::Value>);

impl clap::Args for ServerOptions {
    fn augment_args(command: Command) -> Command {
        command.args(TABLE.iter().map(flag))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for ServerOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut given = Self::default();
        given.update_from_arg_matches(matches)?;
        Ok(given)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let given = TABLE.iter().filter_map(|option| {
            let value = value(option, matches)?;
            Some((option.name.keyword().to_owned(), json(&value)))
        });
        self.0.extend(given);
        Ok(())
    }
}

fn flag(option: &Declared) -> Arg {
    let (form, keyword) = (option.form, option.name.keyword());
    let flag = Arg::new(keyword).long(keyword.replace('_', "-")).help(option.help);
    if form.is_switch() {
        return flag.action(ArgAction::SetTrue);
    }
    let placeholder = form.placeholder();
    let flag = flag
        .value_name(if placeholder.is_empty() { keyword.to_uppercase() } else { placeholder.to_owned() })
        .action(if form.repeats() { ArgAction::Append } else { ArgAction::Set })
        .allow_negative_numbers(true);
    let choices = form.choices();
    if choices.is_empty() {
        return flag.value_parser(move |typed: &str| form.read(typed));
    }
    flag.value_parser(PossibleValuesParser::new(
        choices.into_iter().map(|(word, meaning)| PossibleValue::new(word).help(meaning)),
    ))
}

fn value(option: &Declared, matches: &ArgMatches) -> Option<Value> {
    let keyword = option.name.keyword();
    if option.form.is_switch() {
        matches.get_flag(keyword).then_some(Value::Bool(true))
    } else if option.form.repeats() {
        Some(Value::List(matches.get_many::<Value>(keyword)?.cloned().collect()))
    } else if option.form.choices().is_empty() {
        matches.get_one::<Value>(keyword).cloned()
    } else {
        matches.get_one::<String>(keyword).cloned().map(Value::Text)
    }
}

fn json(value: &Value) -> serde_json::Value {
    match value {
        Value::Nothing => serde_json::Value::Null,
        Value::Bool(value) => (*value).into(),
        Value::Int(number) => Number::from_i128(*number).into(),
        Value::Float(number) => (*number).into(),
        Value::Text(text) | Value::Other(text) => text.as_str().into(),
        Value::Path(path) => path.to_string_lossy().into(),
        Value::List(values) => values.iter().map(json).collect(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::{Cli, Command};

    fn typed(flags: &[&str]) -> Result<String, String> {
        let words = ["feedline", "serve", "data.py:make_loader", "--name", "images"].iter().chain(flags);
        match Cli::try_parse_from(words).map_err(|error| error.to_string())?.command {
            Command::Serve(serve) => Ok(serde_json::to_string(&serve.options).unwrap()),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn only_what_was_given_is_handed_on() {
        assert_eq!(typed(&[]).unwrap(), "{}");
        let flags = [
            "--epochs",
            "3",
            "--ring=500",
            "--history",
            "2GB",
            "--replay",
            "--allow",
            "alice",
            "--allow=7",
            "--lag=skip",
        ];
        assert_eq!(
            typed(&flags).unwrap(),
            r#"{"allow":["alice",7],"epochs":3,"history":"2GB","lag":"skip","replay":true,"ring":500}"#
        );
        assert_eq!(typed(&["--seed", "18446744073709551615"]).unwrap(), r#"{"seed":18446744073709551615}"#);
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_to_type() {
        let said = typed(&["--epochs-ahead", "62"]).unwrap_err();
        assert!(said.contains("'62' for '--epochs-ahead <N>': give a whole number from 0 to 61"), "{said}");
        let said = typed(&["--linger-secs", "-1"]).unwrap_err();
        assert!(said.contains("'--linger-secs <SECS>': give a number, 0 or more"), "{said}");
    }
}
