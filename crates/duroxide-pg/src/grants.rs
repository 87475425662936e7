//! The rights that a role needs in a schema, and checks that it has them.
//!
//! The owner of the schema applies migrations. A worker or a client only reads and writes rows and calls functions, so
//! it can have a role of its own that owns nothing.

use tokio_postgres::types::ToSql;

use crate::address::quoted;
use crate::error::PgError;
use crate::migrate::{functions, in_time, sequences, tables};
use crate::session::Session;

/// Tables that workers and clients only read.
const READ_ONLY: [&str; 2] = ["duroxide_migrations", "store_facts"];
/// An error names so many objects one by one; if the role lacks more, it lists all grants that the role needs.
const NAMED_ONE_BY_ONE: usize = 8;

/// Returns the statements that let a role work in a migrated schema, without owning anything in it.
pub(crate) fn statements(schema: &str, role: &str) -> String {
    let (schema, role) = (quoted(schema), if role == "public" { "PUBLIC".into() } else { quoted(role) });
    let listed =
        |names: &[&str]| names.iter().map(|name| format!("{schema}.{name}")).collect::<Vec<_>>().join(", ");
    let (read, written): (Vec<&str>, Vec<&str>) =
        tables().into_iter().partition(|table| READ_ONLY.contains(table));
    let [tables, sequences, functions] = [written, sequences(), functions()].map(|names| listed(&names));
    format!(
        "GRANT USAGE ON SCHEMA {schema} TO {role};\n\
         GRANT SELECT ON TABLE {read} TO {role};\n\
         GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE {tables} TO {role};\n\
         GRANT USAGE ON SEQUENCE {sequences} TO {role};\n\
         GRANT EXECUTE ON FUNCTION {functions} TO {role};",
        read = listed(&read),
    )
}

/// Checks that the session's role may use the tables and functions of a schema as a store does.
pub(crate) async fn check(session: &Session, schema: &str) -> Result<(), PgError> {
    const LACKS: &str = "
        WITH wanted AS (
            SELECT 'SCHEMA' AS kind, format('%I', n.nspname) AS object, 'schema ' || n.nspname AS name, 'USAGE' AS privilege
            FROM pg_namespace n WHERE n.nspname = $1 AND NOT has_schema_privilege(n.oid, 'USAGE')
            UNION ALL
            SELECT 'TABLE', format('%I.%I', n.nspname, c.relname), c.relname, p.privilege
            FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) p(privilege)
            WHERE n.nspname = $1 AND c.relkind IN ('r', 'p') AND c.relname = ANY ($2)
                AND (p.privilege = 'SELECT' OR c.relname <> ALL ($3)) AND NOT has_table_privilege(c.oid, p.privilege)
            UNION ALL
            SELECT 'SEQUENCE', format('%I.%I', n.nspname, c.relname), c.relname, 'USAGE'
            FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname = $1 AND c.relkind = 'S' AND c.relname = ANY ($5)
                AND NOT has_sequence_privilege(c.oid, 'USAGE')
            UNION ALL
            SELECT 'FUNCTION', format('%I.%I(%s)', n.nspname, f.proname, pg_get_function_identity_arguments(f.oid)),
                f.proname, 'EXECUTE'
            FROM pg_proc f JOIN pg_namespace n ON n.oid = f.pronamespace
            WHERE n.nspname = $1 AND f.proname = ANY ($4) AND NOT has_function_privilege(f.oid, 'EXECUTE'))
        SELECT current_user::text AS role, string_agg(privilege, ', ' ORDER BY privilege) || ' on ' || name AS lack,
            format('GRANT %s ON %s %s TO %I;', string_agg(privilege, ', ' ORDER BY privilege), kind, object, current_user)
                AS remedy
        FROM wanted GROUP BY kind, object, name ORDER BY kind DESC, name";
    let read_only: Vec<&str> = READ_ONLY.to_vec();
    let params: [&(dyn ToSql + Sync); 5] = [&schema, &tables(), &read_only, &functions(), &sequences()];
    let rows = in_time("looking at privileges", session.query(LACKS, &params)).await?;
    let Some(first) = rows.first() else { return Ok(()) };
    let role: String = first.get("role");
    let (mut lacks, mut grants): (Vec<String>, Vec<String>) =
        rows.iter().map(|row| (row.get::<_, String>("lack"), row.get::<_, String>("remedy"))).unzip();
    if rows.len() > NAMED_ONE_BY_ONE {
        lacks.truncate(NAMED_ONE_BY_ONE);
        lacks.push(format!("{} more", rows.len() - NAMED_ONE_BY_ONE));
        grants = vec![statements(schema, &role)];
    }
    Err(PgError::MissingGrants {
        schema: schema.to_string(),
        role,
        lacks: lacks.join("; "),
        remedy: format!("run as the schema's owner: {}", grants.join(" ")),
    })
}

/// Checks that the session's role may apply migrations: that it may create missing objects, and owns the tables.
pub(crate) async fn check_owner(session: &Session, schema: &str) -> Result<(), PgError> {
    const SQL: &str = "
        SELECT current_user::text AS role,
            CASE
                WHEN n.oid IS NULL AND NOT has_database_privilege(current_database(), 'CREATE')
                    THEN format('CREATE on database %s', current_database())
                WHEN NOT has_schema_privilege(n.oid, 'CREATE') THEN format('CREATE on schema %s', $1)
                WHEN t.relname IS NOT NULL
                    THEN format('ownership of table %s, which is that of %s', t.relname, pg_get_userbyid(t.relowner))
            END AS lack,
            CASE
                WHEN n.oid IS NULL THEN format('run: CREATE SCHEMA %I AUTHORIZATION %I;', $1, current_user)
                WHEN t.relname IS NOT NULL
                    THEN format('apply migrations as %s, and open the store with Migrations::Verify otherwise',
                        pg_get_userbyid(t.relowner))
                ELSE format('run: GRANT CREATE ON SCHEMA %I TO %I;', $1, current_user)
            END AS remedy
        FROM (VALUES (1)) one LEFT JOIN pg_namespace n ON n.nspname = $1
        LEFT JOIN LATERAL (
            SELECT c.relname, c.relowner FROM pg_class c
            WHERE c.relnamespace = n.oid AND c.relkind = 'r' AND NOT pg_has_role(c.relowner, 'USAGE')
                AND c.relname = ANY ($2)
                AND EXISTS (SELECT 1 FROM pg_class l WHERE l.relnamespace = n.oid AND l.relname = 'duroxide_migrations')
            ORDER BY c.relname LIMIT 1) t ON true";
    let rows = in_time("looking at privileges", session.query(SQL, &[&schema, &tables()])).await?;
    let lacks = rows.first().and_then(|row| Some((row, row.get::<_, Option<String>>("lack")?)));
    match lacks {
        None => Ok(()),
        Some((row, lacks)) => Err(PgError::MissingGrants {
            schema: schema.to_string(),
            role: row.get("role"),
            lacks: format!("{lacks}, to apply migrations"),
            remedy: row.get("remedy"),
        }),
    }
}

/// Gives the roles that could work in the schema before a migration the rights to what it has added. Otherwise a worker
/// of the version before would fail in a function that the migration has changed.
pub(crate) async fn pass_on(session: &Session, schema: &str) -> Result<(), PgError> {
    const ROLES: &str = "
        SELECT DISTINCT CASE WHEN a.grantee = 0 THEN 'public' ELSE pg_get_userbyid(a.grantee)::text END
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace, aclexplode(c.relacl) a
        WHERE n.nspname = $1 AND c.relname = 'instances' AND a.privilege_type = 'INSERT' AND a.grantee <> c.relowner";
    let rows = in_time("looking at privileges", session.query(ROLES, &[&schema])).await?;
    for row in &rows {
        in_time("passing on privileges", session.run(&statements(schema, row.get(0)))).await?;
    }
    Ok(())
}

/// Refuses a schema in which another role has put a function or an operator that the server could take instead of one of its
/// own or of the store's, and warns if other roles could do so later.
///
/// Names in the store's functions are looked up in `pg_catalog` first and then in the schema, but an overload in the schema
/// wins if it fits the arguments better. A `search_path` of the functions' own would not help: their tables are in the schema
/// too. What belongs to the schema's owner, to the tables' owner, to this role, to a superuser or to an extension is no
/// stranger's.
pub(crate) async fn keep_off_strangers(session: &Session, schema: &str) -> Result<(), PgError> {
    let placed = in_time("looking for functions of others", session.query(PLACED, &[&schema])).await?;
    if let Some(row) = placed.first() {
        let (object, owner): (&str, &str) = (row.get("object"), row.get("owner"));
        return Err(PgError::AlteredSchema {
            schema: schema.to_string(),
            reason: format!(
                "role '{owner}' has created {object} in it, which could be called instead of one of the server's or of the \
                 store's; drop it, and take the right to create objects there away from others"
            ),
        });
    }
    let rows = in_time("looking at privileges", session.query(MAY_PLACE, &[&schema])).await?;
    for row in &rows {
        let role: &str = row.get(0);
        tracing::warn!(
            target: "duroxide::providers::postgres", schema, role,
            "other roles may create objects in this schema, and could put functions and operators before the store's; give \
             the store a schema of its own, or run: REVOKE CREATE ON SCHEMA {} FROM {role}", quoted(schema)
        );
    }
    Ok(())
}

/// The roles that are no strangers in a schema, as a common table expression.
macro_rules! at_home {
    () => {
        "WITH at_home AS (
            SELECT n.oid AS schema, r.oid AS role FROM pg_namespace n, pg_roles r
            WHERE n.nspname = $1 AND (r.rolsuper OR r.oid = n.nspowner OR r.rolname = current_user
                OR r.oid = (SELECT c.relowner FROM pg_class c WHERE c.relnamespace = n.oid AND c.relname = 'instances')
                OR EXISTS (SELECT 1 FROM pg_database d WHERE d.datname = current_database() AND d.datdba = r.oid)))"
    };
}

/// Functions and operators of strangers that have the name of another.
const PLACED: &str = concat!(
    at_home!(),
    ", placed AS (
        SELECT 'pg_proc'::regclass AS class, p.oid, format('the function %s', p.oid::regprocedure) AS object,
            p.proowner AS owner, p.pronamespace AS schema
        FROM pg_proc p WHERE EXISTS (SELECT 1 FROM pg_proc o WHERE o.proname = p.proname AND o.oid <> p.oid
            AND o.pronamespace IN ('pg_catalog'::regnamespace, p.pronamespace))
        UNION ALL
        SELECT 'pg_operator'::regclass, o.oid, format('the operator %s', o.oid::regoperator), o.oprowner, o.oprnamespace
        FROM pg_operator o)
    SELECT o.object, pg_get_userbyid(o.owner)::text AS owner FROM placed o JOIN pg_namespace n ON n.oid = o.schema
    WHERE n.nspname = $1 AND o.owner NOT IN (SELECT h.role FROM at_home h)
        AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.classid = o.class AND d.objid = o.oid AND d.deptype = 'e')
    ORDER BY 1 LIMIT 1"
);

/// Strangers that may create objects.
const MAY_PLACE: &str = concat!(
    at_home!(),
    " SELECT DISTINCT CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END
    FROM pg_namespace n, aclexplode(n.nspacl) a
    WHERE n.nspname = $1 AND a.privilege_type = 'CREATE' AND a.grantee NOT IN (SELECT h.role FROM at_home h)
    ORDER BY 1"
);
