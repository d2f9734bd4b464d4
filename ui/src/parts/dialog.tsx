import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

interface Props {
  title: string;
  onClose: () => void;
  class?: string;
  children: ComponentChildren;
}

/** A modal dialog: Escape and a click beside it close it, the focus goes back to where it was. */
export function Dialog({ title, onClose, class: name = "", children }: Props) {
  const box = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    const shown = box.current;
    shown?.showModal();
    // The browser gives the focus back when a dialog is closed, not when it is taken away.
    return () => shown?.close();
  }, []);
  return (
    <dialog
      ref={box}
      class={name}
      aria-label={title}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClick={(event) => {
        if (event.target === box.current) {
          onClose();
        }
      }}
    >
      <div class="dialog-body">
        <h2>{title}</h2>
        {children}
      </div>
    </dialog>
  );
}
