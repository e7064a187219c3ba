// The search runs in a worker, and browsers start no worker for a page that was opened from a file. Such a page gets a
// Worker that is a hidden frame instead; its script sees postMessage and importScripts as in a worker. The plugin
// `offline` takes a script of this name in place of one that it would fetch from another site.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.early = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.documentElement.append(frame);
      this.inside = frame.contentWindow;
      const base = new URL(url, location.href);
      const load = (source) =>
        new Promise((resolve, reject) => {
          const script = this.inside.document.createElement("script");
          script.onload = resolve;
          script.onerror = () => reject(new Error(`${source} cannot be loaded`));
          script.src = new URL(source, base);
          this.inside.document.head.append(script);
        });
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      // Later ones need earlier ones.
      this.inside.importScripts = (...sources) =>
        sources.reduce((before, source) => before.then(() => load(source)), Promise.resolve());
      load(base).then(() => {
        const early = this.early;
        this.early = null;
        early.forEach((data) => this.deliver(data));
      });
    }
    postMessage(data) {
      // What comes before the script is there waits, as in a worker.
      if (this.early) this.early.push(data);
      else this.deliver(data);
    }
    deliver(data) {
      this.inside.dispatchEvent(new MessageEvent("message", { data }));
    }
    terminate() {
      this.inside.frameElement.remove();
    }
  };
}
