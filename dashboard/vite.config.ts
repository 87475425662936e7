import { defineConfig } from 'vite';
import { svelte } from '@sveltejs/vite-plugin-svelte';

// The output is committed inside the crate, under names that never change: the crate embeds each file by its name.
export default defineConfig({
  base: './',
  plugins: [svelte()],
  build: {
    outDir: '../crates/duroxide-dashboard/assets',
    emptyOutDir: true,
    target: 'es2022',
    modulePreload: false,
    // The pages' security policy allows no inline data but images.
    assetsInlineLimit: 0,
    cssCodeSplit: false,
    rollupOptions: {
      output: { entryFileNames: 'app.js', assetFileNames: 'app[extname]', inlineDynamicImports: true },
    },
  },
});
