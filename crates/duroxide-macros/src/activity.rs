//! `#[activity]`.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::quote;
use syn::Type;

use crate::attribute::{Kind, Settings};
use crate::body::{Parts, type_name};
use crate::function::Function;
use crate::result_type::Outcome;

pub fn expand(attribute: TokenStream, item: TokenStream) -> TokenStream {
    activity(attribute, item).unwrap_or_else(|error| error.into_compile_error())
}

fn activity(attribute: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let settings = Settings::parse(Kind::Activity, attribute)?;
    let function = Function::parse(Kind::Activity, item)?;
    let outcome = Outcome::of(&function.item.sig.output, &settings.krate)?;
    let parts = Parts { function: &function, outcome: &outcome, krate: &settings.krate };

    let (attributes, _) = function.attributes();
    let (visibility, name) = (&function.item.vis, &function.item.sig.ident);
    let (krate, macros) = (&settings.krate, parts.macros());
    let (output, error) = (&outcome.output, &outcome.error);
    let (parameters, encoded) = (parts.parameters(), parts.encoded());
    let (arguments_type, arguments_pattern) = (parts.arguments_type(), parts.arguments_pattern());
    let recorded_name = settings.recorded_name(name);
    let activity = type_name(name);
    let inner = parts.inner_function(TokenStream::new());
    let ctx = Ident::new("ctx", Span::mixed_site());
    let call = parts.inner_call(&ctx);
    let defaults = defaults(&settings, &parts);
    let states = states(&function, &parts);

    Ok(quote! {
        #(#attributes)*
        #[allow(clippy::too_many_arguments)]
        #[track_caller]
        #visibility fn #name(
            __ctx: &#krate::OrchestrationContext,
            #parameters
        ) -> #krate::ActivityCall<
            impl #krate::Activity<Args = #arguments_type, Output = #output, Error = #error> + use<>,
        > {
            struct #activity;
            impl #krate::Activity for #activity {
                const NAME: &'static str = #recorded_name;
                type Args = #arguments_type;
                type Output = #output;
                type Error = #error;
                async fn body(
                    #ctx: #krate::ActivityContext,
                    #arguments_pattern: Self::Args,
                ) -> ::std::result::Result<Self::Output, Self::Error> {
                    #call
                }
                #states
                #defaults
            }
            #inner
            #macros::check_types::<#output, #error>();
            #macros::activity_call::<#activity>(__ctx, #encoded)
        }
    })
}

/// What calls do that do not say, and which errors are final.
fn defaults(settings: &Settings, parts: &Parts<'_>) -> TokenStream {
    let (krate, macros) = (parts.krate, parts.macros());
    let retry = settings.retry.as_ref().map(|retry| {
        quote! {
            fn retry() -> ::std::option::Option<#krate::RetryPolicy> {
                ::std::option::Option::Some(#retry)
            }
        }
    });
    let timeout = settings.timeout.as_ref().map(|timeout| {
        quote! {
            fn timeout() -> ::std::option::Option<::std::time::Duration> {
                ::std::option::Option::Some(#timeout)
            }
        }
    });
    let is_final = settings.non_retryable.as_ref().map(|pattern| {
        quote! {
            if ::std::matches!(error, #pattern) {
                return false;
            }
        }
    });
    quote! {
        #retry
        #timeout
        fn is_retryable(error: &Self::Error) -> bool {
            #[allow(unused_imports)]
            use #macros::{ByDefault as _, ByTrait as _};
            #is_final
            (&#macros::Judge(error)).is_retryable()
        }
    }
}

/// What has to be given at start: the `State` arguments, and what the body asks its context for.
fn states(function: &Function, parts: &Parts<'_>) -> TokenStream {
    let krate = parts.krate;
    let mut types: Vec<TokenStream> = function.states().map(|ty| quote!(#ty)).collect();
    let block = &function.item.block;
    asked_for(quote!(#block), &mut types);
    if types.is_empty() {
        return TokenStream::new();
    }
    quote! {
        fn states() -> ::std::vec::Vec<#krate::StateKey> {
            ::std::vec![#(#krate::StateKey::of::<#types>()),*]
        }
    }
}

/// Finds `.state::<T>()` in a body, at any depth.
fn asked_for(tokens: TokenStream, types: &mut Vec<TokenStream>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (at, token) in tokens.iter().enumerate() {
        if let TokenTree::Group(group) = token {
            asked_for(group.stream(), types);
        }
        let is_call = matches!(token, TokenTree::Punct(dot) if dot.as_char() == '.')
            && matches!(tokens.get(at + 1), Some(TokenTree::Ident(name)) if name == "state")
            && is_punct(tokens.get(at + 2), ':')
            && is_punct(tokens.get(at + 3), ':')
            && is_punct(tokens.get(at + 4), '<');
        if is_call {
            let rest: TokenStream = tokens[at + 5..].iter().cloned().collect();
            let first = |input: syn::parse::ParseStream<'_>| {
                let ty: Type = input.parse()?;
                let _rest: TokenStream = input.parse()?;
                Ok(ty)
            };
            if let Ok(ty) = syn::parse::Parser::parse2(first, rest) {
                types.push(quote!(#ty));
            }
        }
    }
}

fn is_punct(token: Option<&TokenTree>, character: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == character)
}
