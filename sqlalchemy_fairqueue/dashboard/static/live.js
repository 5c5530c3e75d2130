// Replaces the content of an open page when the server says that there are new figures. The page works without it.
"use strict";

(() => {
  const main = () => document.querySelector("main");
  if (!window.EventSource) return;
  if (main().hasAttribute("data-unread")) {
    new EventSource("live?at=").addEventListener("figures", () => location.reload());
    return;
  }
  if (!main().hasAttribute("data-live")) return;

  let paused = false;
  let asking = false;
  let pressed = false;
  addEventListener("pointerdown", () => { pressed = true; });
  for (const end of ["pointerup", "pointercancel", "blur"]) addEventListener(end, () => { pressed = false; });

  const button = document.createElement("button");
  button.className = "livebutton";
  button.type = "button";
  const label = () => {
    button.setAttribute("aria-pressed", String(!paused));
    button.textContent = paused ? "Paused" : "Live";
    button.title = paused ? "Go on showing new figures" : "Stop showing new figures";
  };
  button.addEventListener("click", () => { paused = !paused; label(); });
  label();
  document.querySelector(".bar").append(button);

  const isBusy = () => {
    const active = document.activeElement;
    const edited = active && main().contains(active) && active.matches("input, select, textarea");
    return pressed || edited || main().querySelector("details[open]") || String(window.getSelection()).length > 0 ||
      [...main().querySelectorAll("form.editor input")].some((field) =>
        field.value !== field.defaultValue || field.checked !== field.defaultChecked) ||
      [...main().querySelectorAll("form.editor option")].some((field) => field.selected !== field.defaultSelected);
  };

  const update = async () => {
    if (paused || asking || document.hidden || isBusy()) return;
    asking = true;
    try {
      const address = new URL(location.href);
      address.searchParams.delete("done");
      address.searchParams.delete("count");
      address.hash = "";
      const answer = await fetch(address);
      if (!answer.ok || isBusy()) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.querySelector("main");
      if (!fresh) return;
      const links = (node) => [...node.querySelectorAll("a, button, summary")];
      const focused = links(main()).indexOf(document.activeElement);
      const reference = focused >= 0 ? document.activeElement.getAttribute("href") : null;
      // The notice of what the operator did stays for at least 15 seconds, so that people can read it.
      const done = performance.now() < 15000 && main().querySelector(".notice.good");
      main().replaceWith(document.adoptNode(fresh));
      if (done) main().prepend(done);
      if (focused >= 0) {
        const found = links(main());
        (found.find((one) => reference && one.getAttribute("href") === reference) || found[focused])?.focus();
      }
    } catch { /* The next event tries again. */ } finally {
      asking = false;
    }
  };

  const source = new EventSource("live");
  source.addEventListener("figures", update);
  source.addEventListener("open", () => button.classList.remove("away"));
  source.addEventListener("error", () => button.classList.add("away"));
})();
