/**
 * Prints every string of `src` that a person may see, as file:line and text: children of elements, labels, titles,
 * and whatever else reads like words. `node scripts/strings.mjs [word ...]` keeps lines with one of the words.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

const root = join(fileURLToPath(import.meta.url), '../../src');
const HIDDEN = new Set(['class', 'id', 'for', 'role', 'type', 'd', 'style', 'viewBox', 'transform', 'href', 'do', 'kind', 'event']);
const SHOWN = new Set(['label', 'title', 'text', 'aria-label', 'placeholder', 'alt', 'caption', 'message', 'hint', 'name', 'tip', 'words']);

/** The words of a literal, with {code} where a value goes; null for other nodes. */
function words(node, source) {
  if (ts.isStringLiteral(node) || ts.isNoSubstitutionTemplateLiteral(node)) return node.text;
  if (!ts.isTemplateExpression(node)) return null;
  return node.head.text + node.templateSpans.map(s => `{${s.expression.getText(source)}}${s.literal.text}`).join('');
}

/** Whether a literal stands where it's shown (true), where it's never shown (false), or neither (null). */
function shown(node, source) {
  const parent = node.parent;
  if (ts.isImportDeclaration(parent) || ts.isExportDeclaration(parent) || ts.isLiteralTypeNode(parent)) return false;
  if (ts.isElementAccessExpression(parent) || ts.isCaseClause(parent)) return false;
  if (ts.isPropertyAssignment(parent)) {
    if (parent.name === node) return null;
    const name = parent.name.getText(source).replace(/['"]/g, '');
    return HIDDEN.has(name) ? false : SHOWN.has(name) ? true : null;
  }
  if (ts.isBinaryExpression(parent)) {
    const kind = parent.operatorToken.kind;
    if (kind === ts.SyntaxKind.EqualsEqualsEqualsToken || kind === ts.SyntaxKind.ExclamationEqualsEqualsToken) return false;
    if (kind === ts.SyntaxKind.EqualsToken && /textContent|title|ariaLabel|innerText/.test(parent.left.getText(source))) return true;
  }
  if (ts.isCallExpression(parent)) {
    const callee = parent.expression.getText(source);
    const at = parent.arguments.indexOf(node);
    if (/^(h|svg)$/.test(callee)) return at >= 2;
    if (/\.(get|set|on|send|has|add|remove|toggle|querySelector(All)?|closest|matches|addEventListener|getContext|setProperty|startsWith|endsWith|includes|split|join)$/.test(callee)) return false;
    if (/\.setAttribute$/.test(callee)) return /aria-label|title|alt/.test(parent.arguments[0].getText(source)) && at === 1;
  }
  return null;
}

function list(file) {
  const source = ts.createSourceFile(file, readFileSync(file, 'utf8'), ts.ScriptTarget.Latest, true);
  const visit = node => {
    const text = words(node, source);
    if (text !== null) {
      const place = shown(node, source);
      const reads = /[A-Za-z]{2,}/.test(text) && (/[A-Za-z,.:] \S|\S [A-Za-z]/.test(text.replace(/\{[^}]*\}/g, 'x')) || /^[A-Z][a-z]/.test(text));
      if (place === true ? /[A-Za-z]/.test(text.replace(/\{[^}]*\}/g, '')) : place === null && reads) {
        const line = source.getLineAndCharacterOfPosition(node.getStart(source)).line + 1;
        lines.push(`${relative(root, file)}:${line}: ${text.replace(/\s*\n\s*/g, ' ')}`);
      }
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
}

const lines = [];
for (const entry of readdirSync(root, { recursive: true }).sort()) {
  if (entry.endsWith('.ts') && !entry.endsWith('.d.ts')) list(join(root, entry));
}
const asked = process.argv.slice(2);
for (const line of lines) if (!asked.length || asked.some(word => line.includes(word))) console.log(line);
