// What the whole page knows: the server's answer to "who am I here", the theme, open dialogs.
import type { Meta } from './api';

export type ActionKind =
  | 'start' | 'raise' | 'enqueue' | 'cancel' | 'retry' | 'delete' | 'prune' | 'release' | 'drop' | 'crash';

export type Action = {
  kind: ActionKind;
  /** The instances that it concerns. */
  ids: string[];
  /** Rows in quarantine that it concerns. */
  rows?: number[];
  /** Names to suggest: of signals or queues that an instance waits for, of known orchestrations. */
  names?: string[];
  running?: boolean;
  /** Of an orchestration to start. */
  name?: string;
  version?: string;
  input?: string;
  done?: () => void;
};

const stored = localStorage.getItem('duroxide.theme');
const dark = window.matchMedia('(prefers-color-scheme: dark)');

const session = $state<{
  meta: Meta | null;
  login: boolean;
  theme: 'light' | 'dark' | 'system';
  action: Action | null;
  palette: boolean;
  help: boolean;
}>({
  meta: null,
  login: false,
  theme: stored === 'light' || stored === 'dark' ? stored : 'system',
  action: null,
  palette: false,
  help: false,
});

export default session;

export const mayAct = () => session.meta?.access === 'full';

export function act(action: Action) {
  session.action = action;
}

export function isDark(): boolean {
  return session.theme === 'dark' || (session.theme === 'system' && dark.matches);
}

export function applyTheme() {
  document.documentElement.dataset.theme = isDark() ? 'dark' : 'light';
}

export function toggleTheme() {
  session.theme = isDark() ? 'light' : 'dark';
  localStorage.setItem('duroxide.theme', session.theme);
  applyTheme();
}

dark.addEventListener('change', applyTheme);
applyTheme();
