//! Reads the signature of an activity or orchestration, and says what is wrong with it.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote};
use syn::spanned::Spanned;
use syn::{Attribute, FnArg, GenericArgument, Ident, ItemFn, Pat, PatType, PathArguments, Type};

use crate::attribute::Kind;

/// The most arguments that a function may take besides its context and states.
pub const MOST_ARGUMENTS: usize = 8;

/// A function with its arguments sorted.
pub struct Function {
    pub item: ItemFn,
    pub context: Option<Context>,
    /// What the body gets, in the order of its arguments, the context left out.
    pub inputs: Vec<Input>,
}

/// The leading context.
pub struct Context {
    /// Its name, for advice.
    pub name: Option<Ident>,
    pub by_reference: bool,
}

/// One argument of the body.
pub enum Input {
    /// A shared service, given at start.
    State(Type),
    /// A value that the caller passes.
    Value(Value),
}

/// A value that the caller passes and the history records.
pub struct Value {
    pub name: Ident,
    /// The type as it is written.
    pub ty: Type,
    /// The type that the worker decodes.
    pub owned: TokenStream,
    pub by_reference: bool,
}

impl Function {
    pub fn parse(kind: Kind, item: TokenStream) -> syn::Result<Self> {
        let (attribute, _) = kind.words();
        let item: ItemFn = syn::parse2(item.clone()).map_err(|error| {
            match is_function(&item) {
                // A syntax error inside a function is told as it is.
                true => error,
                false => syn::Error::new(
                    item.into_iter().next().map_or_else(Span::call_site, |token| token.span()),
                    format!("{attribute} stands above an async function, and above nothing else"),
                ),
            }
        })?;
        check_signature(kind, &item)?;
        let mut arguments = Vec::new();
        for argument in &item.sig.inputs {
            match argument {
                FnArg::Typed(typed) => arguments.push(typed.clone()),
                FnArg::Receiver(receiver) => return Err(no_receiver(kind, receiver.span())),
            }
        }
        let context = take_context(kind, &item, &mut arguments)?;
        let inputs = sort(kind, &arguments)?;
        Ok(Self { item, context, inputs })
    }

    pub fn values(&self) -> impl Iterator<Item = &Value> {
        self.inputs.iter().filter_map(|input| match input {
            Input::Value(value) => Some(value),
            Input::State(_) => None,
        })
    }

    pub fn states(&self) -> impl Iterator<Item = &Type> {
        self.inputs.iter().filter_map(|input| match input {
            Input::State(ty) => Some(ty),
            Input::Value(_) => None,
        })
    }

    /// The attributes that callers should see, and those that belong to the body.
    pub fn attributes(&self) -> (Vec<&Attribute>, Vec<&Attribute>) {
        let is =
            |attribute: &Attribute, names: &[&str]| names.iter().any(|name| attribute.path().is_ident(name));
        let of_callers = |attribute: &&Attribute| is(attribute, &["doc", "cfg", "deprecated", "must_use"]);
        let lints = ["allow", "expect", "warn", "deny", "forbid"];
        let outer = self.item.attrs.iter().filter(|each| of_callers(each) || is(each, &lints)).collect();
        let inner = self.item.attrs.iter().filter(|each| !of_callers(each)).collect();
        (outer, inner)
    }
}

fn is_function(item: &TokenStream) -> bool {
    item.clone()
        .into_iter()
        .any(|token| matches!(token, proc_macro2::TokenTree::Ident(ident) if ident == "fn"))
        && !item.clone().into_iter().any(|token| {
            matches!(token, proc_macro2::TokenTree::Ident(ident)
                if ["struct", "enum", "impl", "mod", "trait", "type"].iter().any(|word| ident == word))
        })
}

fn check_signature(kind: Kind, item: &ItemFn) -> syn::Result<()> {
    let (attribute, it) = kind.words();
    let signature = &item.sig;
    let refuse = |span: Span, told: String| Err(syn::Error::new(span, told));
    if let Some(constness) = &signature.constness {
        return refuse(
            constness.span(),
            format!("{it} is not `const`: it runs when it is called, not when it is compiled"),
        );
    }
    if signature.asyncness.is_none() {
        let told = format!("{attribute} needs an async function; write `async fn {}`", signature.ident);
        return refuse(signature.fn_token.span(), told);
    }
    if !matches!(signature.safety, syn::Safety::Default) {
        return refuse(
            signature.safety.span(),
            format!("{it} is not `unsafe`: the runtime calls it, and proves nothing first"),
        );
    }
    if let Some(abi) = &signature.abi {
        return refuse(abi.span(), format!("{it} has no ABI of its own; leave `extern` out"));
    }
    if let Some(variadic) = &signature.variadic {
        return refuse(variadic.span(), format!("{it} takes a fixed number of arguments"));
    }
    if let Some(generic) = signature.generics.params.first() {
        let told = match generic {
            syn::GenericParam::Lifetime(_) => format!(
                "{it} names no lifetimes: its arguments are recorded and read again, so a reference lives as long as the call; \
                 write `&T` without a name"
            ),
            _ => format!(
                "{it} is not generic: its name alone must say what code runs and what types were recorded; write one function \
                 for each type, and share a generic helper between them"
            ),
        };
        return refuse(generic.span(), told);
    }
    if let Some(clause) = &signature.generics.where_clause {
        return refuse(clause.span(), format!("{it} is not generic, so it needs no `where`"));
    }
    Ok(())
}

fn no_receiver(kind: Kind, span: Span) -> syn::Error {
    let (_, it) = kind.words();
    let instead = match kind {
        Kind::Activity => "take what it needs as `State<T>`, which is given once at start",
        Kind::Orchestration => "pass what it needs as arguments, which are recorded",
    };
    syn::Error::new(span, format!("{it} is a free function without `self`; {instead}"))
}

/// Takes the context off the front of the arguments.
fn take_context(kind: Kind, item: &ItemFn, arguments: &mut Vec<PatType>) -> syn::Result<Option<Context>> {
    let (own, other) = match kind {
        Kind::Activity => ("ActivityContext", "OrchestrationContext"),
        Kind::Orchestration => ("OrchestrationContext", "ActivityContext"),
    };
    for (at, argument) in arguments.iter().enumerate() {
        let told = if names(&argument.ty, other) {
            match kind {
                Kind::Activity => format!(
                    "an activity gets an `{own}`, not an `{other}`: it runs outside the orchestration, and takes no durable \
                     steps of its own"
                ),
                Kind::Orchestration => format!("an orchestration gets an `{own}`, not an `{other}`"),
            }
        } else if at > 0 && names(&argument.ty, own) {
            "the context is the first argument".to_string()
        } else {
            continue;
        };
        return Err(syn::Error::new(argument.ty.span(), told));
    }
    let has_context = arguments.first().is_some_and(|first| names(&first.ty, own));
    if !has_context {
        return match kind {
            Kind::Activity => Ok(None),
            Kind::Orchestration => Err(syn::Error::new(
                item.sig.ident.span(),
                format!(
                    "the first argument of an orchestration is its context: `async fn {}(ctx: OrchestrationContext, ..)`",
                    item.sig.ident
                ),
            )),
        };
    }
    let first = arguments.remove(0);
    if let Type::Reference(reference) = &*first.ty
        && let Some(mutability) = &reference.mutability
    {
        return Err(syn::Error::new(
            mutability.span(),
            format!("take the context as `{own}`; it needs no `mut`"),
        ));
    }
    let name = match &*first.pat {
        Pat::Ident(pattern) => Some(pattern.ident.clone()),
        _ => None,
    };
    Ok(Some(Context { name, by_reference: matches!(&*first.ty, Type::Reference(_)) }))
}

/// Tells whether a type is this one, by value or behind a reference.
fn names(ty: &Type, name: &str) -> bool {
    match ty {
        Type::Reference(reference) => names(&reference.elem, name),
        Type::Path(path) => path.path.segments.last().is_some_and(|segment| segment.ident == name),
        _ => false,
    }
}

fn sort(kind: Kind, arguments: &[PatType]) -> syn::Result<Vec<Input>> {
    let mut inputs = Vec::new();
    let mut values = 0;
    for (at, argument) in arguments.iter().enumerate() {
        if let Some(attribute) = argument.attrs.first() {
            let told = "arguments take no attributes here; put what serde should know on a field of a struct";
            return Err(syn::Error::new(attribute.span(), told));
        }
        if let Some(state) = state(&argument.ty) {
            if kind == Kind::Orchestration {
                let told = "an orchestration has no `State`: services are not recorded, and a replay could find others; call an \
                            activity that uses them";
                return Err(syn::Error::new(argument.ty.span(), told));
            }
            inputs.push(Input::State(state));
            continue;
        }
        values += 1;
        if values > MOST_ARGUMENTS {
            let told = format!(
                "at most {MOST_ARGUMENTS} arguments are recorded; put them into a struct, whose fields have names"
            );
            return Err(syn::Error::new(argument.span(), told));
        }
        inputs.push(Input::Value(value(at, argument)?));
    }
    Ok(inputs)
}

/// The service type of a `State<T>`.
fn state(ty: &Type) -> Option<Type> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last()?;
    if last.ident != "State" {
        return None;
    }
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match arguments.args.first() {
        Some(GenericArgument::Type(ty)) if arguments.args.len() == 1 => Some(ty.clone()),
        _ => None,
    }
}

fn value(at: usize, argument: &PatType) -> syn::Result<Value> {
    let name = match &*argument.pat {
        Pat::Ident(pattern) => pattern.ident.clone(),
        other => format_ident!("argument_{at}", span = other.span()),
    };
    let (owned, by_reference) = owned(&argument.ty)?;
    Ok(Value { name, ty: (*argument.ty).clone(), owned, by_reference })
}

/// The type that a worker decodes for an argument.
fn owned(ty: &Type) -> syn::Result<(TokenStream, bool)> {
    match ty {
        Type::Reference(reference) => {
            if let Some(mutability) = &reference.mutability {
                let told = "an argument is recorded and read again, so a change would not come back; return the changed value";
                return Err(syn::Error::new(mutability.span(), told));
            }
            if let Some(lifetime) = &reference.lifetime {
                let told = "an argument is recorded and read again; write `&T` without a lifetime, or take it by value";
                return Err(syn::Error::new(lifetime.span(), told));
            }
            let owned = match &*reference.elem {
                Type::Slice(slice) => {
                    let item = &slice.elem;
                    quote!(::std::vec::Vec<#item>)
                }
                Type::Path(path) if path.path.is_ident("str") => quote!(::std::string::String),
                Type::TraitObject(object) => return Err(not_concrete(object.span(), "a trait object")),
                Type::ImplTrait(opaque) => return Err(not_concrete(opaque.span(), "`impl Trait`")),
                other => quote!(#other),
            };
            Ok((owned, true))
        }
        Type::ImplTrait(opaque) => Err(not_concrete(opaque.span(), "`impl Trait`")),
        Type::TraitObject(object) => Err(not_concrete(object.span(), "a trait object")),
        Type::Ptr(pointer) => Err(not_concrete(pointer.span(), "a pointer")),
        Type::FnPtr(function) => Err(not_concrete(function.span(), "a function")),
        Type::Infer(infer) => Err(not_concrete(infer.span(), "`_`")),
        other => Ok((quote!(#other), false)),
    }
}

fn not_concrete(span: Span, what: &str) -> syn::Error {
    let told =
        format!("an argument is recorded and read again, so its type must be a concrete one; {what} is not");
    syn::Error::new(span, told)
}
