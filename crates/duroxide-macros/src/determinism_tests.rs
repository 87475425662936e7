//! The rules with their words, in one file to review, and what they leave alone.

use super::*;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/determinism_rules.txt");

/// All rules, in the order in which they are tried: those at the start of a path first say what they spare.
fn rules() -> String {
    let lines = RULES.iter().map(|rule| {
        let shown = rule.path.join("::");
        let pattern = match rule.place {
            Place::Start => format!("{shown}, {shown}::.."),
            Place::End => format!("{shown}, ..::{shown}"),
            Place::Macro => format!("{shown}!"),
        };
        let told = match rule.why {
            "" => "is fine".to_string(),
            _ => message(rule, rule.path, "ctx"),
        };
        format!("{pattern}\n    {told}\n")
    });
    lines.collect()
}

#[test]
fn the_words_of_each_rule_are_those_that_were_reviewed() {
    if std::env::var("TRYBUILD").is_ok_and(|what| what == "overwrite") {
        std::fs::write(FILE, rules()).expect("the file can be written");
    }
    let reviewed = std::fs::read_to_string(FILE).expect("the file is there");
    assert_eq!(
        rules(),
        reviewed,
        "`TRYBUILD=overwrite` writes {FILE} anew; read the difference before you commit it"
    );
}

#[test]
fn each_rule_is_reached() {
    for rule in RULES.iter().filter(|rule| !rule.why.is_empty()) {
        let path = rule.path.join("::");
        let code = match rule.place {
            Place::Macro => format!("{path}!()"),
            Place::Start if rule.path.len() == 1 => format!("{path}::anything()"),
            Place::Start | Place::End => format!("{path}()"),
        };
        let told = check(code.parse().expect("tokens"), "ctx");
        assert_eq!(told.len(), 1, "{code}");
        assert!(told[0].to_string().contains(rule.why), "an earlier rule takes {code}: {}", told[0]);
    }
}

#[test]
fn what_takes_the_context_is_a_durable_function_of_the_user() {
    let spared = |code: &str| check(code.parse().expect("tokens"), "ctx").is_empty();
    for code in ["task::spawn(&ctx, 1)", "time::timeout(ctx)", "crate::fs::write(&ctx)", "env::var(&ctx,)"] {
        assert!(spared(code), "{code}");
    }
    for code in
        ["task::spawn(work(&ctx))", "env::var(ctx.name)", "fs::write(path, &ctx)", "time::sleep(&other, 1)"]
    {
        assert!(!spared(code), "{code}");
    }
    // No module of the user's has these names.
    for code in ["tokio::spawn(ctx)", "std::fs::write(&ctx, 1)"] {
        assert!(!spared(code), "{code}");
    }
}
