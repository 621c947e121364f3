// The search runs in a worker. Browsers start no worker for pages that are opened as files, so run it in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      this.started = new Promise(resolve => {
        this.frame.onload = () => {
          const inner = this.frame.contentWindow
          inner.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
          const script = inner.document.createElement("script")
          script.src = url
          script.onload = () => resolve(inner)
          inner.document.body.appendChild(script)
        }
      })
      document.body.appendChild(this.frame)
    }

    postMessage(data) {
      this.started.then(inner => inner.dispatchEvent(new inner.MessageEvent("message", { data })))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
