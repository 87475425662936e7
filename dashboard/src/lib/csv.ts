// A list of instances as a table for other programs.
import type { InstanceRow } from './api';

const COLUMNS = ['id', 'name', 'version', 'state', 'execution', 'parent', 'custom_status', 'created_at_ms', 'updated_at_ms'] as const;

// A cell that begins like a formula is quoted, so that a spreadsheet does not run a customer's payload.
function cell(value: unknown): string {
  const plain = String(value ?? '');
  const safe = /^[=+\-@\t\r]/.test(plain) ? `'${plain}` : plain;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

export const csv = (rows: InstanceRow[]) =>
  [COLUMNS.join(','), ...rows.map((row) => COLUMNS.map((column) => cell(row[column])).join(','))].join('\r\n');
