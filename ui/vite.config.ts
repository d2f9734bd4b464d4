import { defineConfig } from "vite";

// The build is committed inside the orchestrator's package: nobody needs Node to run it.
export default defineConfig({
  build: {
    outDir: "../services/orchestrator/dashboard/static",
    emptyOutDir: true,
    // What has light-dark(): the page needs no lowering of it.
    target: ["chrome123", "firefox120", "safari17.5"],
    // A data: address would be outside of the content security policy.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    rolldownOptions: {
      // Stable names: a change of the source is a change of these files, not of their names. Browsers ask by ETag.
      output: {
        entryFileNames: "assets/[name].js",
        chunkFileNames: "assets/[name].js",
        assetFileNames: "assets/[name][extname]",
      },
    },
  },
});
