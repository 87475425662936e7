// Short messages in the corner: what an action did, or why it did not.
type Toast = { id: number; text: string; tone: 'note' | 'failed' };

const shown = $state<Toast[]>([]);
let next = 1;

export const toasts = {
  get all() {
    return shown;
  },
  drop(id: number) {
    const at = shown.findIndex((t) => t.id === id);
    if (at >= 0) shown.splice(at, 1);
  },
};

export function toast(text: string, tone: Toast['tone'] = 'note') {
  const id = next++;
  shown.push({ id, text, tone });
  setTimeout(() => toasts.drop(id), tone === 'failed' ? 9000 : 4000);
}
