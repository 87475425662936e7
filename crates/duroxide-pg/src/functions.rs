//! Functions of the database, called with named parameters.
//!
//! A statement names each parameter (`f(p_now => $1, …)`), as its caller does (`params![p_now: now, …]`). So the order does not
//! matter, and the server refuses a name that the function does not have: two values of one type cannot change places
//! unnoticed.

use std::sync::OnceLock;

use tokio_postgres::types::ToSql;

/// A parameter: its name, and its value.
pub(crate) type Param<'a> = (&'static str, &'a (dyn ToSql + Sync));

/// A parameter of a call that is made later.
pub(crate) type OwnedParam = (&'static str, Box<dyn ToSql + Send + Sync>);

/// Lists parameters by their names.
macro_rules! params {
    ($($name:ident: $value:expr),* $(,)?) => {
        vec![$((stringify!($name), &$value as &(dyn tokio_postgres::types::ToSql + Sync))),*]
    };
}
pub(crate) use params;

/// Lists parameters of a call that is made later by their names.
macro_rules! owned_params {
    ($($name:ident: $value:expr),* $(,)?) => {
        vec![$((
            stringify!($name),
            Box::new($value) as Box<dyn tokio_postgres::types::ToSql + Send + Sync>,
        )),*]
    };
}
pub(crate) use owned_params;

/// A function that the store calls by itself. Every call of it has the same parameters, in any order.
pub(crate) struct Function {
    name: &'static str,
    returns_rows: bool,
    sql: OnceLock<String>,
}

impl Function {
    /// A function that returns a value.
    pub(crate) const fn value(name: &'static str) -> Self {
        Self { name, returns_rows: false, sql: OnceLock::new() }
    }

    /// A function that returns rows, or a row of several columns.
    pub(crate) const fn rows(name: &'static str) -> Self {
        Self { name, returns_rows: true, sql: OnceLock::new() }
    }

    /// Makes the statement of a call, and its values.
    pub(crate) fn call<V>(&'static self, mut params: Vec<(&'static str, V)>) -> (&'static str, Vec<V>) {
        params.sort_unstable_by_key(|(name, _)| *name);
        let (names, values): (Vec<&str>, Vec<V>) = params.into_iter().unzip();
        (self.sql.get_or_init(|| self.statement(&names)), values)
    }

    fn statement(&self, names: &[&str]) -> String {
        let named = (1..).zip(names).map(|(place, name)| format!("{name} => ${place}")).collect::<Vec<_>>();
        let what = if self.returns_rows { "* FROM " } else { "" };
        format!("SELECT {what}{}({})", self.name, named.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_parameters_does_not_matter() {
        static ONE: Function = Function::rows("f_1");
        let (now, id, token) = (1_i64, 2_i64, "t");
        let (sql, values) = ONE.call(params![p_now: now, p_id: id, p_token: token]);
        assert_eq!(sql, "SELECT * FROM f_1(p_id => $1, p_now => $2, p_token => $3)");
        assert_eq!(values.len(), 3);
        let (same, other) = ONE.call(params![p_token: token, p_id: id, p_now: now]);
        assert_eq!(format!("{sql} {values:?}"), format!("{same} {other:?}"));
        static VALUE: Function = Function::value("g_2");
        assert_eq!(VALUE.call(owned_params![p_only: 1_i64]).0, "SELECT g_2(p_only => $1)");
    }
}
