//! What a function returns: an output, and the error that may come in its place.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{GenericArgument, Path, PathArguments, ReturnType, Type};

/// The two types of an outcome.
pub struct Outcome {
    pub output: TokenStream,
    pub error: TokenStream,
    /// Whether the body itself returns a `Result`.
    pub is_result: bool,
}

impl Outcome {
    /// A type whose name ends with `Result` is a result, also behind an alias. Any other is an output that cannot fail;
    /// the call still can, with a `Failure`.
    pub fn of(returned: &ReturnType, krate: &Path) -> syn::Result<Self> {
        let failure = quote!(#krate::Failure);
        let ReturnType::Type(_, ty) = returned else {
            return Ok(Self { output: quote!(()), error: failure, is_result: false });
        };
        if let Type::ImplTrait(opaque) = &**ty {
            let told = "the output is recorded, so its type must have a name; `impl Trait` has none";
            return Err(syn::Error::new(opaque.span(), told));
        }
        let Some(arguments) = result_arguments(ty) else {
            return Ok(Self { output: quote!(#ty), error: failure, is_result: false });
        };
        if let [output, error] = arguments.as_slice() {
            return Ok(Self { output: quote!(#output), error: quote!(#error), is_result: true });
        }
        // An alias: ask the compiler what it stands for.
        let alias = quote!(#krate::typed::macros::ResultType);
        Ok(Self {
            output: quote_spanned!(ty.span()=> <#ty as #alias>::Output),
            error: quote_spanned!(ty.span()=> <#ty as #alias>::Error),
            is_result: true,
        })
    }
}

/// The arguments of a type whose name ends with `Result`.
fn result_arguments(ty: &Type) -> Option<Vec<&Type>> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last()?;
    if !last.ident.to_string().ends_with("Result") {
        return None;
    }
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return Some(Vec::new()) };
    let types = arguments.args.iter().filter_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    });
    Some(types.collect())
}
