//! What stands in the parentheses of an attribute.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{Expr, Ident, LitStr, Pat, Path, Token};

/// Names that belong to the library.
const RESERVED_PREFIX: &str = "__duroxide_syscall:";

/// The settings of an activity or of an orchestration.
pub struct Settings {
    pub name: Option<LitStr>,
    pub version: Option<LitStr>,
    pub retry: Option<Expr>,
    pub timeout: Option<Expr>,
    pub non_retryable: Option<Pat>,
    pub unchecked: bool,
    pub krate: Path,
    /// Set once the path was given.
    crate_given: Option<()>,
}

/// Which attribute is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Activity,
    Orchestration,
}

impl Kind {
    /// The attribute as a user writes it, and what it makes of a function.
    pub fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Activity => ("#[activity]", "an activity"),
            Self::Orchestration => ("#[orchestration]", "an orchestration"),
        }
    }

    fn known(self) -> &'static str {
        match self {
            Self::Activity => "`name`, `retry`, `timeout`, `non_retryable` and `crate`",
            Self::Orchestration => "`name`, `version`, `unchecked` and `crate`",
        }
    }
}

impl Settings {
    pub fn parse(kind: Kind, tokens: TokenStream) -> syn::Result<Self> {
        let mut settings = Self {
            name: None,
            version: None,
            retry: None,
            timeout: None,
            non_retryable: None,
            unchecked: false,
            krate: syn::parse_quote!(::duroxide),
            crate_given: None,
        };
        let parser = |input: ParseStream<'_>| {
            while !input.is_empty() {
                settings.take(kind, input)?;
                if !input.is_empty() {
                    input.parse::<Token![,]>()?;
                }
            }
            Ok(())
        };
        syn::parse::Parser::parse2(parser, tokens)?;
        Ok(settings)
    }

    fn take(&mut self, kind: Kind, input: ParseStream<'_>) -> syn::Result<()> {
        let key = input.call(<Ident as syn::ext::IdentExt>::parse_any)?;
        let activity = kind == Kind::Activity;
        match key.to_string().as_str() {
            "name" => once(&mut self.name, &key, name(value(&key, "\"Charge\"", input)?)?),
            "version" if !activity => {
                once(&mut self.version, &key, version(value(&key, "\"2.0.0\"", input)?)?)
            }
            "version" => Err(syn::Error::new(
                key.span(),
                "activities have no versions: give changed work another name, and leave the old one registered until no \
                 orchestration calls it",
            )),
            "retry" if activity => {
                once(&mut self.retry, &key, value(&key, "RetryPolicy::exponential(5)", input)?)
            }
            "timeout" if activity => once(&mut self.timeout, &key, value(&key, "mins(2)", input)?),
            "non_retryable" if activity => once(&mut self.non_retryable, &key, pattern(&key, input)?),
            "retry" | "timeout" | "non_retryable" => Err(syn::Error::new(
                key.span(),
                format!(
                    "`{key}` is a setting of activities; an orchestration is code, and decides itself what to do again"
                ),
            )),
            "unchecked" if !activity => {
                self.unchecked = true;
                Ok(())
            }
            "crate" => {
                self.krate = value(&key, "my_duroxide", input)?;
                once(&mut self.crate_given, &key, ())
            }
            other => Err(syn::Error::new(
                key.span(),
                format!("{} knows no `{other}`; it knows {}", kind.words().0, kind.known()),
            )),
        }
    }

    /// The recorded name.
    pub fn recorded_name(&self, function: &Ident) -> TokenStream {
        match &self.name {
            Some(name) => quote!(#name),
            None => {
                let name = syn::ext::IdentExt::unraw(function).to_string();
                let name = LitStr::new(&name, function.span());
                quote!(#name)
            }
        }
    }
}

fn once<T>(place: &mut Option<T>, key: &Ident, value: T) -> syn::Result<()> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(syn::Error::new(key.span(), format!("`{key}` is given twice"))),
    }
}

fn value<T: Parse>(key: &Ident, example: &str, input: ParseStream<'_>) -> syn::Result<T> {
    let missing = |span: Span| syn::Error::new(span, format!("`{key}` needs a value: `{key} = {example}`"));
    if !input.peek(Token![=]) {
        return Err(missing(key.span()));
    }
    input.parse::<Token![=]>()?;
    if input.is_empty() {
        return Err(missing(key.span()));
    }
    let at = input.span();
    let another =
        |_| syn::Error::new(at, format!("this is no value of `{key}`; write it as in `{key} = {example}`"));
    input.parse().map_err(another)
}

fn name(name: LitStr) -> syn::Result<LitStr> {
    let text = name.value();
    if text.trim().is_empty() {
        return Err(syn::Error::new(name.span(), "a recorded name is not empty"));
    }
    if text.starts_with(RESERVED_PREFIX) {
        let told = format!("names that begin with `{RESERVED_PREFIX}` belong to the library");
        return Err(syn::Error::new(name.span(), told));
    }
    Ok(name)
}

fn version(version: LitStr) -> syn::Result<LitStr> {
    let text = version.value();
    let core = text.split(['-', '+']).next().unwrap_or_default();
    let parts: Vec<&str> = core.split('.').collect();
    let is_number = |part: &&str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_digit())
            && (part.len() == 1 || !part.starts_with('0'))
            && part.parse::<u64>().is_ok()
    };
    match parts.len() == 3 && parts.iter().all(is_number) {
        true => Ok(version),
        false => Err(syn::Error::new(
            version.span(),
            format!("\"{text}\" is no version; one has three numbers, as in \"2.0.0\""),
        )),
    }
}

fn pattern(key: &Ident, input: ParseStream<'_>) -> syn::Result<Pat> {
    if !input.peek(Token![=]) {
        let told = format!("`{key}` needs a pattern: `{key} = ChargeError::Declined(_)`");
        return Err(syn::Error::new(key.span(), told));
    }
    input.parse::<Token![=]>()?;
    let pattern = Pat::parse_multi(input)?;
    // It would match every error, and is most likely meant as the name of a function.
    if let Pat::Ident(name) = &pattern
        && name.subpat.is_none()
        && name.ident.to_string().starts_with(|first: char| first.is_lowercase())
    {
        let told = format!(
            "`{}` as a pattern matches every error; name the errors that are final, as in `{key} = ChargeError::Declined(_)`",
            name.ident
        );
        return Err(syn::Error::new(pattern.span(), told));
    }
    Ok(pattern)
}
