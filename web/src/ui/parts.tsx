/** The components that all parts of the page share. */

import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { t } from '../i18n';

export type Tone = 'good' | 'warn' | 'bad' | 'plain';

export function Badge({ tone, children }: { tone: Tone; children: ComponentChildren }) {
    return <span class={`badge ${tone}`}>{children}</span>;
}

/** A message. Screen readers announce it at once if `alert` is set. */
export function Notice({ tone = 'plain', alert, children }: { tone?: Tone; alert?: boolean; children: ComponentChildren }) {
    return (
        <div class={`notice ${tone}`} role={alert ? 'alert' : undefined}>
            {children}
        </div>
    );
}

/** Error messages; nothing if there are none. */
export function Errors({ messages }: { messages: string[] }) {
    if (messages.length === 0) return null;
    return (
        <Notice tone="bad" alert>
            {messages.map((message) => (
                <p key={message}>{message}</p>
            ))}
        </Notice>
    );
}

export interface Figure {
    name: string;
    value: string;
    about?: string | undefined;
}

export function Figures({ figures }: { figures: Figure[] }) {
    return (
        <dl class="figures">
            {figures.map(({ name, value, about }) => (
                <div key={name}>
                    <dt>{name}</dt>
                    <dd>{value}</dd>
                    {about !== undefined && <dd>{about}</dd>}
                </div>
            ))}
        </dl>
    );
}

/** A bar that shows a share from 0 to 1. Hidden from screen readers, because the text beside it has the figure. */
export function Meter({ share, colour }: { share: number; colour: string }) {
    return (
        <div class={`meter of-${colour}`} aria-hidden="true">
            <svg viewBox="0 0 100 1" preserveAspectRatio="none">
                <rect width={Math.min(100, Math.max(0, share * 100))} height="1" />
            </svg>
        </div>
    );
}

interface TabsProps {
    /** The name of the list of tabs, for screen readers. */
    label: string;
    tabs: { id: string; name: string; errors?: number }[];
    current: string;
    choose: (id: string) => void;
    children: ComponentChildren;
}

/** Tabs by the ARIA pattern: one is in the order of the Tab key, arrow keys move between them. */
export function Tabs({ label, tabs, current, choose, children }: TabsProps) {
    const list = useRef<HTMLDivElement>(null);
    const move = (event: KeyboardEvent) => {
        const at = tabs.findIndex((tab) => tab.id === current);
        const next = {
            ArrowRight: (at + 1) % tabs.length,
            ArrowLeft: (at + tabs.length - 1) % tabs.length,
            Home: 0,
            End: tabs.length - 1,
        }[event.key];
        const tab = next === undefined ? undefined : tabs[next];
        if (!tab) return;
        event.preventDefault();
        choose(tab.id);
        list.current?.querySelector<HTMLElement>(`#tab-${tab.id}`)?.focus();
    };
    return (
        <>
            <div class="tabs" role="tablist" aria-label={label} ref={list} onKeyDown={move}>
                {tabs.map(({ id, name, errors = 0 }) => (
                    <button
                        key={id}
                        id={`tab-${id}`}
                        type="button"
                        role="tab"
                        aria-selected={id === current}
                        aria-controls="panel"
                        tabIndex={id === current ? 0 : -1}
                        onClick={() => choose(id)}
                    >
                        {name}
                        {errors > 0 && (
                            <span class="count">
                                {errors}
                                <span class="hidden"> {t('settings.errors')}</span>
                            </span>
                        )}
                    </button>
                ))}
            </div>
            <div id="panel" class="stack" role="tabpanel" aria-labelledby={`tab-${current}`}>
                {children}
            </div>
        </>
    );
}

/** A modal dialog. Escape closes it. */
export function Dialog({ title, close, children }: { title: string; close: () => void; children: ComponentChildren }) {
    const dialog = useRef<HTMLDialogElement>(null);
    useEffect(() => {
        dialog.current?.showModal();
    }, []);
    return (
        <dialog
            ref={dialog}
            aria-labelledby="dialog-title"
            onCancel={(event) => {
                event.preventDefault();
                close();
            }}
        >
            <div>
                <h2 id="dialog-title">{title}</h2>
                {children}
            </div>
        </dialog>
    );
}

/** A unified diff with its added and removed lines marked. */
export function Diff({ text }: { text: string }) {
    return (
        <pre class="diff">
            {text.split('\n').map((line, n) => {
                if (line.startsWith('+')) return <ins key={n}>{line}</ins>;
                if (line.startsWith('-')) return <del key={n}>{line}</del>;
                return <span key={n}>{line || ' '}</span>;
            })}
        </pre>
    );
}
