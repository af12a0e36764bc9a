// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! `fastpath top`: the heap of a running process, as slabtop shows the kernel's.

mod table;

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use fastpath_alloc::live::Snapshot;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row, Table};
use table::{Order, Rates};

use crate::args::TopArgs;
use crate::failure::Failure;
use crate::terminal;
use crate::watched::Watched;

/// What the screen shows, and how.
struct View {
    name: String,
    page: Snapshot,
    resident: u64,
    rates: Rates,
    order: Order,
    turned: bool,
    paused: bool,
    first: usize,
}

/// Prints one table, or shows it until a key ends it.
pub(crate) fn run(args: &TopArgs) -> Result<ExitCode, Failure> {
    let watched = Watched::find(args.pid)?;
    let gone = |error| Failure::operation(format!("process {}", args.pid), error);
    let page = watched.fresh().map_err(gone)?;
    if args.once {
        let head = table::head(&watched.name(), &page, watched.resident(), None);
        terminal::print(&table::text(&head, &table::rows(&page, Order::Live, false)))?;
        return Ok(ExitCode::SUCCESS);
    }
    if !std::io::stdout().is_terminal() {
        return Err(Failure::Usage("top needs a terminal; --once prints one table".to_owned()));
    }
    let mut view = View {
        name: watched.name(),
        resident: watched.resident(),
        page,
        rates: Rates::default(),
        order: Order::Live,
        turned: false,
        paused: false,
        first: 0,
    };
    let mut screen =
        ratatui::try_init().map_err(|error| Failure::operation("cannot use the terminal", error))?;
    let shown = show(&mut screen, &watched, &mut view, Duration::from_secs(u64::from(args.delay)));
    ratatui::restore();
    match shown {
        Ok(true) => Ok(ExitCode::SUCCESS),
        Ok(false) => {
            terminal::print(&format!("process {} has ended\n", args.pid))?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => Err(error.into()),
    }
}

/// Draws and listens to keys. True: a key ended it; false: the process did.
fn show(
    screen: &mut ratatui::DefaultTerminal,
    watched: &Watched,
    view: &mut View,
    delay: Duration,
) -> std::io::Result<bool> {
    let mut next = Instant::now() + delay;
    loop {
        screen.draw(|frame| draw(frame, view))?;
        let wait = next.saturating_duration_since(Instant::now());
        if event::poll(wait)? {
            // A change of size is drawn by the next round.
            if let Event::Key(key) = event::read()?
                && key.kind != KeyEventKind::Release
                && !press(view, key.code, key.modifiers)
            {
                return Ok(true);
            }
            continue;
        }
        next = Instant::now() + delay;
        watched.ask();
        let Ok(page) = watched.look() else { return Ok(false) };
        if !view.paused {
            view.rates = Rates::between(&view.page, &page);
            view.page = page;
            view.resident = watched.resident();
        }
    }
}

/// Does what a key says; false if that is to end.
fn press(view: &mut View, key: KeyCode, modifiers: KeyModifiers) -> bool {
    match key {
        KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => return false,
        KeyCode::Char('q') | KeyCode::F(10) => return false,
        KeyCode::Char('s' | '>') | KeyCode::F(6) => view.order = view.order.next(),
        KeyCode::Char('r' | 'I') => view.turned = !view.turned,
        KeyCode::Char(' ' | 'Z') => view.paused = !view.paused,
        KeyCode::Down | KeyCode::Char('j') => view.first += 1,
        KeyCode::Up | KeyCode::Char('k') => view.first = view.first.saturating_sub(1),
        KeyCode::PageDown => view.first += 10,
        KeyCode::PageUp => view.first = view.first.saturating_sub(10),
        KeyCode::Home => view.first = 0,
        _ => {}
    }
    true
}

fn draw(frame: &mut Frame<'_>, view: &mut View) {
    let head = table::head(&view.name, &view.page, view.resident, Some(view.rates));
    let [above, middle, below] = Layout::vertical([
        Constraint::Length(head.len() as u16 + 1),
        Constraint::Min(2),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(head.into_iter().map(Line::from).collect::<Vec<_>>()), above);
    let rows = table::rows(&view.page, view.order, view.turned);
    let room = usize::from(middle.height.saturating_sub(1));
    view.first = view.first.min(rows.len().saturating_sub(room));
    let reversed = Style::default().add_modifier(Modifier::REVERSED);
    let titles = table::TITLES.map(|title| {
        let marked = if title == view.order.title() { format!("{title}▼") } else { title.to_owned() };
        Cell::from(Line::from(marked).right_aligned())
    });
    let body = rows.iter().skip(view.first).take(room).map(|row| {
        Row::new(
            row.iter().map(|cell| Cell::from(Line::from(cell.as_str()).right_aligned())).collect::<Vec<_>>(),
        )
    });
    let widths = [Constraint::Fill(1); table::COLUMNS];
    frame.render_widget(Table::new(body, widths).header(Row::new(titles).style(reversed)), middle);
    let state = if view.paused { "  (paused)" } else { "" };
    frame.render_widget(
        Paragraph::new(format!("F6 Sort  r Turn  Space Pause  ↑↓ Scroll  F10 Quit{state}")).style(reversed),
        below,
    );
}
