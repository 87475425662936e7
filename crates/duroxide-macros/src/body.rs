//! The parts that an activity and an orchestration have in common.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote};
use syn::Path;

use crate::function::{Function, Input};
use crate::result_type::Outcome;

/// A function on its way to become an activity or an orchestration.
pub struct Parts<'a> {
    pub function: &'a Function,
    pub outcome: &'a Outcome,
    pub krate: &'a Path,
}

impl Parts<'_> {
    /// The type of the tuple that the worker decodes.
    pub fn arguments_type(&self) -> TokenStream {
        let owned = self.function.values().map(|value| &value.owned);
        quote!((#(#owned,)*))
    }

    /// The pattern that takes that tuple apart, into names that no code of the user sees.
    pub fn arguments_pattern(&self) -> TokenStream {
        let names = self.function.values().enumerate().map(|(at, _)| argument(at));
        quote!((#(#names,)*))
    }

    /// The arguments of the outer function, after the context.
    pub fn parameters(&self) -> TokenStream {
        let parameters = self.function.values().map(|value| {
            let (name, ty) = (&value.name, &value.ty);
            quote!(#name: #ty)
        });
        quote!(#(#parameters),*)
    }

    /// The text of the arguments, as it is recorded.
    pub fn encoded(&self) -> TokenStream {
        let macros = self.macros();
        let values: Vec<_> = self.function.values().collect();
        match values.as_slice() {
            [] => quote!(#macros::encode_none()),
            [one] => {
                let (name, owned) = (&one.name, &one.owned);
                match one.by_reference {
                    true => quote!(#macros::encode_borrowed::<#owned, _>(#name)),
                    false => quote!(#macros::encode_one::<#owned>(&#name)),
                }
            }
            many => {
                let names = many.iter().map(|value| &value.name);
                quote!(#macros::encode_many(&(#(&#names,)*)))
            }
        }
    }

    /// The inner function: the user's code, unchanged.
    pub fn inner_function(&self, before: TokenStream) -> TokenStream {
        let (_, attributes) = self.function.attributes();
        let item = &self.function.item;
        let (inputs, output, block) = (&item.sig.inputs, &item.sig.output, &item.block);
        let body = inner_name();
        // The user's block stays a block of its own, so that what it imports hides what we import.
        let block = match before.is_empty() {
            true => quote!(#block),
            false => quote!({ #before #block }),
        };
        quote! {
            #(#attributes)*
            async fn #body(#inputs) #output #block
        }
    }

    /// Calls the inner function; `ctx` is the context by value.
    pub fn inner_call(&self, ctx: &Ident) -> TokenStream {
        let (body, macros, error) = (inner_name(), self.macros(), &self.outcome.error);
        let mut states = TokenStream::new();
        let mut arguments = Vec::new();
        let mut at = 0;
        for (index, input) in self.function.inputs.iter().enumerate() {
            match input {
                Input::State(ty) => {
                    let state = format_ident!("state_{index}", span = Span::mixed_site());
                    states.extend(quote! {
                        let #state = match #macros::state::<#ty>(&#ctx) {
                            ::std::result::Result::Ok(state) => state,
                            ::std::result::Result::Err(failure) => {
                                return ::std::result::Result::Err(<#error as ::std::convert::From<_>>::from(failure));
                            }
                        };
                    });
                    arguments.push(quote!(#state));
                }
                Input::Value(value) => {
                    let name = argument(at);
                    at += 1;
                    arguments.push(if value.by_reference { quote!(&#name) } else { quote!(#name) });
                }
            }
        }
        let context = self.function.context.as_ref().map(|context| match context.by_reference {
            true => quote!(&#ctx,),
            false => quote!(#ctx,),
        });
        let call = quote!(#body(#context #(#arguments),*).await);
        let call = match self.outcome.is_result {
            true => call,
            false => quote!(::std::result::Result::Ok(#call)),
        };
        quote!(#states #call)
    }

    pub fn macros(&self) -> TokenStream {
        let krate = self.krate;
        quote!(#krate::typed::macros)
    }
}

fn argument(at: usize) -> Ident {
    format_ident!("argument_{at}", span = Span::mixed_site())
}

fn inner_name() -> Ident {
    Ident::new("__body", Span::mixed_site())
}

/// The name of the local type: that of the function, as types are written.
pub fn type_name(function: &Ident) -> Ident {
    let name = syn::ext::IdentExt::unraw(function).to_string();
    let name: String = name
        .split('_')
        .filter(|part| !part.is_empty())
        .map(|part| {
            let mut characters = part.chars();
            let first = characters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
            format!("{first}{}", characters.as_str())
        })
        .collect();
    // Names that begin with a digit or are empty are no identifiers: `_1` is a function name, too.
    let name =
        if name.starts_with(|first: char| first.is_alphabetic()) { name } else { format!("Step{name}") };
    Ident::new(&name, Span::mixed_site())
}
