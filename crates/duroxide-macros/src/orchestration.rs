//! `#[orchestration]`.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};

use crate::attribute::{Kind, Settings};
use crate::body::{Parts, type_name};
use crate::determinism;
use crate::function::Function;
use crate::result_type::Outcome;

pub fn expand(attribute: TokenStream, item: TokenStream) -> TokenStream {
    orchestration(attribute, item).unwrap_or_else(|error| error.into_compile_error())
}

fn orchestration(attribute: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let settings = Settings::parse(Kind::Orchestration, attribute)?;
    let function = Function::parse(Kind::Orchestration, item)?;
    let outcome = Outcome::of(&function.item.sig.output, &settings.krate)?;
    let parts = Parts { function: &function, outcome: &outcome, krate: &settings.krate };

    let (attributes, _) = function.attributes();
    let (visibility, name) = (&function.item.vis, &function.item.sig.ident);
    let (krate, macros) = (&settings.krate, parts.macros());
    let (output, error) = (&outcome.output, &outcome.error);
    let (parameters, encoded) = (parts.parameters(), parts.encoded());
    let (arguments_type, arguments_pattern) = (parts.arguments_type(), parts.arguments_pattern());
    let recorded_name = settings.recorded_name(name);
    let version = settings.version.as_ref().map_or_else(|| quote!("1.0.0"), |version| quote!(#version));
    let orchestration = type_name(name);
    // Without a path, `join!` and `select!` are ours in an orchestration, whatever its file imports.
    let ours = quote! {
        #[allow(unused_imports)]
        use #krate::{join, select};
    };
    let inner = parts.inner_function(ours);
    let ctx = Ident::new("ctx", Span::mixed_site());
    let call = parts.inner_call(&ctx);
    // With the span of the name, so that the place is its line and not that of the attribute.
    let place = quote_spanned!(name.span()=> ::std::panic::Location::caller());
    let complaints = complaints(&settings, &function);

    Ok(quote! {
        #complaints
        #(#attributes)*
        #[allow(clippy::too_many_arguments)]
        #[track_caller]
        #visibility fn #name(
            __ctx: &#krate::OrchestrationContext,
            #parameters
        ) -> #krate::OrchestrationCall<impl #krate::Orchestration<Output = #output, Error = #error> + use<>> {
            struct #orchestration;
            impl #krate::Orchestration for #orchestration {
                const NAME: &'static str = #recorded_name;
                const VERSION: &'static str = #version;
                const PLACE: &'static ::std::panic::Location<'static> = #place;
                type Args = #arguments_type;
                type Output = #output;
                type Error = #error;
                async fn body(
                    #ctx: #krate::OrchestrationContext,
                    #arguments_pattern: Self::Args,
                ) -> ::std::result::Result<Self::Output, Self::Error> {
                    #call
                }
            }
            #inner
            #macros::check_types::<#output, #error>();
            #macros::orchestration_call::<#orchestration>(__ctx, #encoded)
        }
    })
}

/// What breaks determinism, as compile errors beside the code, which still compiles otherwise: so the errors are about
/// that alone.
fn complaints(settings: &Settings, function: &Function) -> TokenStream {
    if settings.unchecked {
        return TokenStream::new();
    }
    let ctx = function.context.as_ref().and_then(|context| context.name.as_ref());
    let ctx = ctx.map_or_else(|| "ctx".to_string(), |name| name.to_string());
    let block = &function.item.block;
    let errors = determinism::check(quote!(#block), &ctx);
    errors.into_iter().map(|error| error.into_compile_error()).collect()
}
